"""The process that moves broker groups between states: reports in, one record per group out. So far its decision only.

Design: docs/design/0031-switch-over.md.
"""
