"""Benchmarks of an engine and its proxies, without peers: `python -m bench.alone CASE …`, one file per case."""
