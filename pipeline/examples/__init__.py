"""Programs to start from, on real data that PySpark ships: python -m pipeline.examples.NAME --help."""
