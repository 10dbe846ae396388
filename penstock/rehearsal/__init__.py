"""Runs a plan on copies: a Penstock of its own, synthetic load, commands as processes, kills. See docs/migration.md."""
