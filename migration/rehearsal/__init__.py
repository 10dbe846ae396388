"""Rehearsal of a plan on copies of its topics. `penstock.rehearsal` runs it; see docs/design/0035-migration.md."""
