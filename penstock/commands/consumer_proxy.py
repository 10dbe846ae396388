"""`penstock consumer-proxy`: becomes `python -m consumer_proxy` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("consumer-proxy", "consumer_proxy")
