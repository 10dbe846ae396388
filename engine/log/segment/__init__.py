"""Segment files and their side files: indexes, checked ids, scans."""
