"""Rates that Spark with Penstock should reach on two cores, with the system beside it."""

TARGETS = {"write": 200_000, "batch read": 500_000, "stream": 250_000, "archive": 150_000}
"""Messages of 200 bytes per second, by step."""
PEAK_PSS_MIB = 1536
"""Memory of the driver and its workers."""
