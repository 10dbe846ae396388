"""The link's bytes, shared by both of its ends: `engine/server` answers, `engine/client` asks."""
