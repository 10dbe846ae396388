"""Delivery: dispatch of messages to groups, leases, acknowledgements, dead letters. Pure; clocks and the log are passed in."""
