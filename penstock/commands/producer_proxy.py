"""`penstock producer-proxy`: becomes `python -m producer_proxy` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("producer-proxy", "producer_proxy")
