"""Benchmarks of the engine behind its proxies, without peers: `python -m bench.alone CASE …`, one file per case."""
