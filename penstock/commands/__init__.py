"""One module per sub-command, and its parts: `penstock/__main__.py` imports one when its command is used. They share penstock.terminal."""
