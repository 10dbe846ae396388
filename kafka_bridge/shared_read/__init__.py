"""Dual read: the bridge as a member of consumer groups on Kafka, and copies of what it gets for the same groups here."""
