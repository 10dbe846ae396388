"""The buffer on this machine's disk: a write-ahead log of entries.

In order: format, segment, threads, commit, store, dead.
"""
