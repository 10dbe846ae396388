"""Replication of the log to slaves: positions, windows and frames. Pure: no socket, file or clock; engine/broker has those.

Design: docs/design/0030-replication.md.
"""
