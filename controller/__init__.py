"""The process that moves broker groups between states: reports in, one record per group out.

Design: docs/design/0031-switch-over.md. Tour: README.md.
"""
