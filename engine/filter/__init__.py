"""The index of all filters of a topic. See README.md."""
