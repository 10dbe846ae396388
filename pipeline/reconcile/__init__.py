"""Comparison of two sides that should have the same messages, by id and content."""
