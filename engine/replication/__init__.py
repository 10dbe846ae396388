"""Replication of the log to slaves: positions, windows and frames. Pure: no socket, file or clock. No process uses it yet.

Design: docs/design/0030-replication.md.
"""
