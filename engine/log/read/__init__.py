"""Reading records back: by offset, by time, from the tail and from cold segments."""
