"""The data directory of one machine: `config/ engine/ logs/ *.key up.json up.lock`."""

from pathlib import Path

FOLDERS = ("config", "engine", "logs")
CLUSTER_KEY, ADMIN_KEY, REPLICA_KEY, CONTROLLER_KEY = "cluster.key", "admin.key", "replica.key", "controller.key"
"""Secrets by which processes authenticate to engines: proxies and bridges, operators, brokers, controllers."""
OPS_KEY = "ops.key"
"""By which operators drain the proxies of this machine."""
SECRETS_KEY = "secrets.key"
"""Root keys of applications' secrets."""


def prepare(data: Path) -> None:
    """Create missing folders, without access for other users; existing ones stay as they are."""
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    for name in FOLDERS:
        (data / name).mkdir(exist_ok=True)
