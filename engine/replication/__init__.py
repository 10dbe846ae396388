"""Replication of the log to slaves: positions, epochs and windows. Pure: no socket, file or clock. Not used yet.

Design: docs/design/0030-replication.md.
"""
