"""`penstock console`: becomes `python -m console` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("console", "console")
