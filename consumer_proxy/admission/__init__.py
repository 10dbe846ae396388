"""Checks before a pull: permissions and the group's rate limit."""
