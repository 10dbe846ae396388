"""Delayed messages: stored in the log until they are due. Tour in README.md."""
