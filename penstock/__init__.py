"""The penstock command: it wires the parts together."""
