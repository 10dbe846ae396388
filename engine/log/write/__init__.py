"""The writer of the log: append, group commit, sealing of full segments."""
