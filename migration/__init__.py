"""Moves of topics between Kafka clusters and the engine: plans, their state machine and its effects. Tour: README.md."""
