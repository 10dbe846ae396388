"""Clients of Kafka clusters: one interface, two drivers. README.md lists the files."""
