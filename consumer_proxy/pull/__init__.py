"""One pull, from its frame to its reply."""
