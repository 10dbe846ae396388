"""What stands between a call that may be sent and the broker: limits, grades, validation. `gate.py` puts it together."""
