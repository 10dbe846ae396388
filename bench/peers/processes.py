"""Processes of the peers: started, awaited, and always ended by their own process id."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.errors import InstanceError

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Started:
    """A started process and its output file."""

    name: str
    process: subprocess.Popen
    output: Path

    def wait_for(self, text: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Block until the process has printed `text`.

        Raises:
            InstanceError: it ended before, or took too long.
        """
        deadline = time.monotonic() + timeout_s
        while text not in self.printed():
            if self.process.poll() is not None:
                raise InstanceError(
                    f"{self.name} ended with code {self.process.returncode}: {last_lines(self.printed())}"
                )
            if time.monotonic() > deadline:
                raise InstanceError(f"{self.name} was not up within {timeout_s:g} s: {last_lines(self.printed())}")
            time.sleep(0.1)

    def printed(self) -> str:
        return self.output.read_text(errors="replace")


@contextmanager
def started(name: str, line: list[str], folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Run `line` in `folder` for the duration of the block, with its output in NAME.out there."""
    output = folder / f"{name}.out"
    with output.open("wb") as out:
        process = spawn(line, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=env)
    try:
        yield Started(name, process, output)
    finally:
        stop(process)


def spawn(line: list[str], **options) -> subprocess.Popen:
    """Start a child that the kernel kills with this process: a leftover broker would disturb all later figures."""
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    try:
        return subprocess.Popen([*guard, *line], stdin=subprocess.DEVNULL, **options)
    except FileNotFoundError as fault:
        raise InstanceError(f"{line[0]} is not installed; bench/peers/README.md says what the peers need") from fault


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Find free ports of 127.0.0.1; all are held open together, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [end.getsockname()[1] for end in held]
    finally:
        for end in held:
            end.close()


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-600:] or "it printed nothing"
