"""Delivery: who gets which messages, for how long, and what is done. Pure cores; clocks and the log are passed in."""
