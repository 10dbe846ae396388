"""Benchmarks: a native load generator and named workloads."""
