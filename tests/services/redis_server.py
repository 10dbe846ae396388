"""A real redis-server on a free loopback port, as Debian ships it; by default with the settings that a fallback buffer needs."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

from tests.services import require

START_DEADLINE_S = 15.0
SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class RedisServer:
    """Keeps its data and its port over `stop()` and `start()`.

    Args:
        settings: in place of, or beside, the safe ones; names as in redis.conf.
        renamed: commands that do not exist there.
        host: its address.
        port: 0: a free one.
    """

    def __init__(
        self, directory: Path, settings: dict[str, str] | None = None, renamed: tuple[str, ...] = (),
        host: str = "127.0.0.1", port: int = 0,
    ) -> None:  # fmt: skip
        self._binary = shutil.which("redis-server")
        require(self._binary, "redis-server: apt install redis-server")
        directory.mkdir(parents=True, exist_ok=True)
        self.host, self.port = host, port or free_port()
        self._directory, self._process = directory, None
        self._arguments: tuple[str, ...] = ()
        lines = {
            **SAFE,
            "port": str(self.port),
            "bind": host,
            "dir": str(directory),
            "save": '""',
            "repl-diskless-sync-delay": "0",
            **(settings or {}),
        }
        text = "".join(f"{name} {value}\n" for name, value in lines.items())
        text += "".join(f'rename-command {name} ""\n' for name in renamed)
        (directory / "redis.conf").write_text(text)

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(host=self.host, port=self.port, socket_timeout=10, protocol=2, driver_info=None, **options)

    def start(self) -> "RedisServer":
        with open(self._directory / "redis.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), str(self._directory / "redis.conf"), *self._arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start: {(self._directory / 'redis.log').read_text()[-2000:]}")
            time.sleep(0.01)
        return self

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                return connection.recv(5) == b"+PONG"  # not while it loads its data
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal; without effect when it is stopped."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> "RedisServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
