"""The data directory of one machine: `config/ engine/ logs/ cluster.key admin.key up.json up.lock`."""

from pathlib import Path

FOLDERS = ("config", "engine", "logs")
CLUSTER_KEY, ADMIN_KEY = "cluster.key", "admin.key"
"""Secrets by which processes authenticate to each other, and operators' commands to the engines."""


def prepare(data: Path) -> None:
    """Create missing folders, without access for other users; existing ones stay as they are."""
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    for name in FOLDERS:
        (data / name).mkdir(exist_ok=True)
