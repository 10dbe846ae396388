"""The rare path of send: one call in a greenlet."""
