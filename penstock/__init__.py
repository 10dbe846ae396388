"""The `penstock` command: it wires the other packages together and holds no logic of theirs."""
