"""Maintenance of the log: recovery, retention, relocation of live records, scrub."""
