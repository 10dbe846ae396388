"""One module per sub-command; `penstock/__main__.py` imports a module when its command is used."""
