"""Delivery: dispatch to groups, leases, acknowledgements, dead letters. Pure; clocks and the log are passed in."""
