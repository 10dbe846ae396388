"""Additional producer proxy of an instance, with its own command line."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.errors import InstanceError
from bench.instance import BenchInstance

READY_S_MAX = 15.0


class OwnProxy(NamedTuple):
    address: tuple[str, int]
    pid: int


@contextmanager
def own_proxy(instance: BenchInstance, engine: tuple[str, int | str] | None = None) -> Iterator[OwnProxy]:
    """Run an additional producer proxy for the duration of the block.

    Args:
        engine: where it finds the engine, also ("unix", its socket file); None: where that listens.
    Raises:
        InstanceError: it was not ready in time.
    """
    facts = instance.facts
    host, port = engine or (facts["engine"]["host"], facts["engine"]["port"])
    read, write = os.pipe()
    line = [sys.executable, "-P", "-m", "producer_proxy", "--listen", "127.0.0.1:0", "--engine", f"{host}:{port}"]
    line += ["--config", facts["config"], "--cluster-key", facts["cluster_key"], "--ready-fd", str(write)]
    line += ["--secrets-key", facts["secrets_key"]]
    process = subprocess.Popen(line, pass_fds=(write,), stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            told = ready.readline() if select.select([read], [], [], READY_S_MAX)[0] else ""
        if not told:
            raise InstanceError("the producer proxy of the run was not ready in time")
        yield OwnProxy(("127.0.0.1", json.loads(told)["port"]), process.pid)
    finally:
        process.terminate()
        process.wait()
