"""The producer proxy: send."""
