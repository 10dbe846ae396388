"""The consumer proxy: pull."""
