"""`penstock kafka-bridge`: becomes `python -m kafka_bridge` with the same arguments."""

from penstock.terminal.process import process_command

command = process_command("kafka-bridge", "kafka_bridge")
