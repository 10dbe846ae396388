"""An engine that is away, seen by the callers of a topic with a fallback buffer. See `__main__`."""
