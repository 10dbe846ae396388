"""A stopped engine, as callers of a topic with a fallback buffer see it. See `__main__`."""
