"""The source: batch and streaming reads by position."""
