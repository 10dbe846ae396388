"""`penstock engine`: becomes `python -m engine` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("engine", "engine")
