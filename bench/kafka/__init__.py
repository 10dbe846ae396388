"""Figures of Kafka homes, dual writes and moves, each beside the same broker."""
