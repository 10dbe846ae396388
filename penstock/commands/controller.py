"""`penstock controller`: becomes `python -m controller` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("controller", "controller")
