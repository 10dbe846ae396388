"""Figures of the engine behind its proxies, without peers. `python -m bench.alone CASE …`, a file a case."""
