"""What the engine follows of the configuration: group policies, queue ownership, retention of topics."""
