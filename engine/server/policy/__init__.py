"""Configuration that the engine follows: group policies, queue ownership, retention of topics."""
