"""A broker of a group with replicas: what the process does around `engine.replication`. docs/design/0031-switch-over.md."""
