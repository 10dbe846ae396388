"""Filters over stored records, and the index of all filters of a topic. See README.md."""
