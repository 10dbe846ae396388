"""Targets: systems that messages are sent to. In order: base, topics, engine and its parts, kafka and its link, memory."""
