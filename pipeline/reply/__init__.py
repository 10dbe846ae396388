"""Replies of `pull` as Arrow columns."""
