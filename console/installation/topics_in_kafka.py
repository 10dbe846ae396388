"""Topics whose home is a Kafka cluster, created by `penstock topic create`: it asks the cluster for partitions and rules.

The command is a process of its own, because the console loads no client of Kafka.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.config.errors import StoreUnavailable
from console.installation.command_environment import environment_of

CREATE_S_MAX = 20.0
HOUR_MS = 3_600_000
OPTIONS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "home": ("--home", str),
    "queues": ("--queues", str),
    "durability": ("--durability", str),
    "body_bytes_max": ("--body-bytes-max", str),
    "retention_ms": ("--retention-hours", lambda ms: str(ms // HOUR_MS)),
    "rate_messages": ("--rate-messages", str),
    "grade": ("--grade", str),
    "buffer": ("--buffer", str),
    "body_format": ("--body-format", str),
}
"""Setting of a request → option of the command, and its text. The command itself leaves the id window out."""


class TopicsInKafka:
    """
    Args:
        options: of commands, which say where the configuration is; empty: no topic can be created.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)

    def create(self, who: str, name: str, settings: Mapping[str, Any]) -> None:
        """Create a topic of the cluster that `settings` names.

        Raises:
            StoreUnavailable: it was not created, with the command's sentence, or is not known to be.
        """
        if not self._options:
            raise StoreUnavailable("the console was not told where commands find the configuration")
        given = [
            part for key, (option, text) in OPTIONS.items() if key in settings for part in (option, text(settings[key]))
        ]
        line = [sys.executable, "-m", "penstock", "topic", "create", *given, *self._options, "--", name]
        try:
            done = subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CREATE_S_MAX,
                env=environment_of(who),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StoreUnavailable(f"Kafka has not answered within {CREATE_S_MAX:.0f} seconds") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise StoreUnavailable(said[-1] if said else f"the command has ended with exit code {done.returncode}")
