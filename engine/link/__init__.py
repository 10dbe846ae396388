"""The codec of the link, shared by both ends: `engine/server` answers, `engine/client` asks."""
