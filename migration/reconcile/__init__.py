"""Comparison of a topic's messages in Kafka and in the engine, and the repair of what differs."""
