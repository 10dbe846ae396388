"""Segment files and what lies beside them: indexes, checked ids, scanning."""
