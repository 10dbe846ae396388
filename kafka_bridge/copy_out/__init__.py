"""The copier from the engine to Kafka: docs/design/0035-migration.md, "Mirror"."""
