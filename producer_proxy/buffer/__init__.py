"""Fallback buffer: keeps messages durably until the engine takes them. See README.md."""
