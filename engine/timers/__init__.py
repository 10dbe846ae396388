"""Delayed messages: kept in the log until they are due. Tour in README.md."""
