"""Real ZooKeepers on free loopback ports, as Debian ships them: one, or an ensemble.

with ZooKeeper(tmp_path) as server:
    open_store(f"zookeeper://{server.address}/test")
"""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from kazoo.client import KazooClient

from tests.services import require

JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "commons-cli", "metrics-core")
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false")
READS_ALONE = "-Dreadonlymode.enabled=true"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAR_FOLDER = Path("/usr/share/java")
START_DEADLINE_S = 30.0
RECONNECT_S = 30.0  # a server that starts may never answer a session's request: the client waits its session's time
PAGE = Path(__file__).resolve().parents[2] / "docs" / "deployment.md"
TIMES = re.compile(r"^(?:tickTime|initLimit|syncLimit|cnxTimeout|connectToLearnerMasterLimit)=\d+\n", re.MULTILINE)
CONFIG = """\
{times}dataDir={directory}/data
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
4lw.commands.whitelist=*
maxClientCnxns=0
"""


class ZooKeeper:
    """Keeps its data and its port over stop() and start().

    Args:
        host: its address.
        inside: what its command is an argument of, such as `nsenter`.
        members: lines of zoo.cfg about the servers of its ensemble.
        number: its own among them.
    Attributes:
        data: its directory, to be changed while it is stopped.
    """

    def __init__(
        self, directory: Path, host: str = "127.0.0.1", inside: Sequence[str] = (), members: str = "", number: int = 0
    ) -> None:  # fmt: skip
        self._java = shutil.which("java")
        self._jars = [JAR_FOLDER / f"{name}.jar" for name in JARS]
        missing = [jar.name for jar in self._jars if not jar.exists()]
        require(
            self._java and not missing,
            f"ZooKeeper needs java and {', '.join(missing) or 'its jars'}: apt install zookeeper",
        )
        self._directory, self.data = directory, directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._host, self._inside, self._members, self._number = host, inside, members, number
        self.address = f"{host}:{self.port}"

    def start(self) -> None:
        """Start it and return when it serves."""
        self.launch()
        self.wait_serves()

    def launch(self) -> None:
        """Start it, and do not wait until it serves: one of an ensemble does not without others."""
        self.data.mkdir(parents=True, exist_ok=True)
        config = self._directory / "zoo.cfg"
        times = "".join(TIMES.findall(PAGE.read_text()))  # as operators are told to set them
        text = CONFIG.format(times=times, directory=self._directory, host=self._host, port=self.port)
        config.write_text(text + self._members)
        if self._number:
            (self.data / "myid").write_text(str(self._number))
        with open(self._directory / "zookeeper.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._inside,
                    str(self._java),
                    *JAVA_OPTIONS,
                    *([READS_ALONE] if self._members else []),
                    "-cp",
                    ":".join(map(str, self._jars)),
                    MAIN_CLASS,
                    str(config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_serves(self) -> None:
        """Return when it serves."""
        assert self._process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"ZooKeeper did not start: {(self._directory / 'zookeeper.log').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def _serves(self) -> bool:
        """Whether it serves requests: its port answers `ruok` earlier, and a session that begins then may hang."""
        try:
            with socket.create_connection((self._host, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return connection.recv(9) == b"Zookeeper"
        except OSError:
            return False

    def kill(self, number: int) -> None:
        """Send a signal to it, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it with SIGKILL; what it acknowledged is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> "ZooKeeper":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Ensemble:
    """Three servers. Those that are a minority take no session that may write, and serve reads of read-only clients.

    Attributes:
        address: of all of them, separated by commas.
    """

    def __init__(self, directory: Path) -> None:
        numbers = range(1, 4)
        members = "".join(f"server.{each}=127.0.0.1:{free_port()}:{free_port()}\n" for each in numbers)
        folders = [directory / f"server-{each}" for each in numbers]
        for folder in folders:
            folder.mkdir(parents=True)
        self._servers = [
            ZooKeeper(folder, members=members, number=number) for number, folder in zip(numbers, folders, strict=True)
        ]
        self.address = ",".join(each.address for each in self._servers)

    def become_minority(self) -> None:
        """End two of the three."""
        for server in self._servers[1:]:
            server.stop()

    def become_majority(self) -> None:
        """Start the two again, also those that have not ended, and return when all serve."""
        self.become_minority()
        self._launch(self._servers[1:])

    def _launch(self, servers: Iterable[ZooKeeper]) -> None:
        for server in servers:
            server.launch()
        for server in self._servers:
            server.wait_serves()

    def __enter__(self) -> "Ensemble":
        self._launch(self._servers)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.stop()


def expire(client: KazooClient) -> None:
    """End a client's session behind its back: a second connection takes the session over and closes it."""
    thief = KazooClient(hosts=",".join(f"{host}:{port}" for host, port in client.hosts), client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def free_port() -> int:
    """A port of the loopback address that no process has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
