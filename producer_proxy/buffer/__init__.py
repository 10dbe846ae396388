"""The fallback buffer: what the engine does not take is kept durably here until it does. See README.md."""
