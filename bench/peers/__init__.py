"""Penstock and its peers (Kafka, RocketMQ, NATS JetStream) in one run on one machine."""
