"""The buffer on this machine's disk: a write-ahead log of entries. In order: format, scan, segment, commit, store, dead."""
