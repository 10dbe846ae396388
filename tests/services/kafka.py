"""Real Kafka brokers (KRaft, from Maven) on free loopback ports: one node or several, with SASL and TLS if asked for.

with KafkaBrokers(tmp_path) as brokers:
    brokers.bootstrap

The jars come from the cache of `bench/peers`; the first start on a machine fetches them.
"""

import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.errors import InstanceError
from bench.peers.kafka_node import UP, format_line, java_line, new_cluster_id, node_properties, server_line
from bench.peers.processes import free_ports
from bench.peers.replicated.nodes import PeerNode
from tests.services import require
from tests.services.kafka_classes import HEAP, QUICK, class_archive

USER, PASSWORD = "penstock", "correct horse"
SCRAM_USER, SCRAM_PASSWORD = "scrammer", "battery staple"
STEP_TIMEOUT_S = 120
COMMON = """\
num.partitions=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=1
log.cleaner.enable=false
log.retention.ms=-1
"""
SECURE = """\
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://localhost:{tls}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
{jaas}
ssl.keystore.type=PEM
ssl.keystore.location={pem}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
"""
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class KafkaBrokers:
    """Keep their data and their ports over `stop()` and `start()`.

    Args:
        nodes: number of brokers, each also a controller. Three stay a cluster when one is killed.
        secure: also listen with SASL and with SASL over TLS, and check access lists. For one node.
        data: where the nodes keep their messages, in place of `directory`.
        reauthenticate_ms: a login with SASL ends after this time, and with it what a revoked user still has; 0: never.
        is_shutdown_controlled: a node moves its leaders away before it ends on SIGTERM, as in production.
    """

    def __init__(
        self, directory: Path, nodes: int = 1, secure: bool = False, is_shutdown_controlled: bool = False,
        data: Path | None = None, reauthenticate_ms: int = 0,
    ) -> None:  # fmt: skip
        require(shutil.which("java") and shutil.which("mvn"), "Kafka needs java and mvn: apt install maven")
        require(not secure or shutil.which("openssl"), "the openssl command")
        self._directory, self._count, self._secure = directory, nodes, secure
        self._is_shutdown_controlled = is_shutdown_controlled
        self._data, self._reauthenticate_ms = data, reauthenticate_ms
        directory.mkdir(parents=True, exist_ok=True)
        try:
            self._machine = (*QUICK, f"-XX:SharedArchiveFile={class_archive()}")
        except InstanceError as fault:
            require(False, f"Kafka's jars: {fault}")
        ports = free_ports(2 * nodes + 2)
        self.ports, self._controllers = ports[:nodes], ports[nodes : 2 * nodes]
        self.sasl_bootstrap, self.tls_bootstrap = f"127.0.0.1:{ports[-2]}", f"localhost:{ports[-1]}"
        self._secure_ports = ports[-2:]
        self.nodes: list[PeerNode] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def authority(self) -> Path:
        """The certificate that clients of the TLS listener trust."""
        return self._directory / "broker.pem"

    def start(self) -> "KafkaBrokers":
        """Format the nodes at the first start; return when all serve."""
        if not self.nodes:
            self._format()
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_up(STEP_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def _format(self) -> None:
        cluster = new_cluster_id()
        formats = []
        for number in range(1, self._count + 1):
            folder = self._directory / f"node-{number}"
            folder.mkdir(parents=True)
            settings = folder / "server.properties"
            settings.write_text(self._properties(folder, number))
            line = [*format_line(folder, settings, cluster, HEAP, self._machine), *self._credentials()]
            with (folder / "format.out").open("wb") as out:
                formats.append(subprocess.Popen(line, cwd=folder, stdout=out, stderr=subprocess.STDOUT))
            self.nodes.append(
                PeerNode(f"kafka-{number}", server_line(folder, settings, HEAP, self._machine), folder, UP)
            )
        for number, process in enumerate(formats, 1):
            if process.wait(STEP_TIMEOUT_S):
                raise RuntimeError((self._directory / f"node-{number}" / "format.out").read_text()[-2000:])

    def _properties(self, folder: Path, number: int) -> str:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in enumerate(self._controllers, 1))
        copies, in_sync = min(self._count, 3), min(self._count, 2)
        port, controller = self.ports[number - 1], self._controllers[number - 1]
        data = (self._data or folder) / f"data-{number}"
        text = node_properties(data, number, voters, port, controller, copies=copies, in_sync=in_sync)
        shutdown = f"controlled.shutdown.enable={str(self._is_shutdown_controlled).lower()}\n"
        shutdown += f"connections.max.reauth.ms={self._reauthenticate_ms}\n"
        return text + COMMON + shutdown + (self._secure_properties(port, controller) if self._secure else "")

    def _secure_properties(self, port: int, controller: int) -> str:
        pem = _certificate(self._directory)
        sasl, tls = self._secure_ports
        jaas = "\n".join(
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config={login}"
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism, login in (("plain", PLAIN_LOGIN), ("scram-sha-256", SCRAM_LOGIN))
        )
        return SECURE.format(plain=port, controller=controller, sasl=sasl, tls=tls, jaas=jaas, pem=pem)

    def _credentials(self) -> Sequence[str]:
        """Options of the format tool: a SCRAM user cannot be made before the first start otherwise."""
        if not self._secure:
            return ()
        return ("--add-scram", f"SCRAM-SHA-256=[name={SCRAM_USER},password={SCRAM_PASSWORD}]")

    def tool(self, main_class: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run one of Kafka's own command-line programs to its end and return what it printed."""
        line = [*java_line(main_class, self._directory, HEAP, self._machine), *arguments]
        done = subprocess.run(line, input=stdin, capture_output=True, timeout=STEP_TIMEOUT_S, cwd=self._directory)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr).decode(errors="replace")[-2000:])
        return done.stdout

    def program(self, main_class: str, *arguments: str) -> "JavaProgram":
        """Start one of Kafka's own programs; the caller ends it."""
        return JavaProgram([*java_line(main_class, self._directory, HEAP, self._machine), *arguments], self._directory)

    def told(self, number: int) -> str:
        """What a node has printed since its first start."""
        folder = self._directory / f"node-{number}"
        return "".join(each.read_text(errors="replace") for each in sorted(folder.glob("*.out")))

    def kill(self, number: int) -> None:
        """SIGKILL one node; numbers begin at 1, as Kafka's node ids."""
        self.nodes[number - 1].strike(signal.SIGKILL)

    def restart(self, number: int) -> None:
        """Start a killed node and return when it serves."""
        self.nodes[number - 1].launch()
        self.nodes[number - 1].wait_up(STEP_TIMEOUT_S)

    def shut_down(self, number: int) -> None:
        """SIGTERM one node, and return when it has ended in order."""
        self.nodes[number - 1].strike(signal.SIGTERM)
        self.nodes[number - 1].wait_end(STEP_TIMEOUT_S)

    def freeze(self, number: int) -> None:
        self.nodes[number - 1].strike(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.nodes[number - 1].restore(signal.SIGSTOP)

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            if node.is_running:
                node.strike(signal.SIGKILL)

    def __enter__(self) -> "KafkaBrokers":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class JavaProgram:
    """A running program of Kafka, and what it has printed so far."""

    def __init__(self, line: Sequence[str], folder: Path) -> None:
        self._out = folder / f"program-{uuid.uuid4().hex}.out"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(line, cwd=folder, stdout=out, stderr=subprocess.STDOUT)

    def lines(self) -> list[str]:
        """Complete lines; those of its log are among them."""
        return self._out.read_text(errors="replace").rpartition("\n")[0].split("\n")

    def end(self) -> None:
        """SIGTERM, on which a consumer leaves its group."""
        self._process.terminate()
        self._process.wait(STEP_TIMEOUT_S)

    def __enter__(self) -> "JavaProgram":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _certificate(folder: Path) -> Path:
    """Write the listener's key and certificate as one PEM file and return its path."""
    certificate, key, both = folder / "broker.pem", folder / "broker.key", folder / "keystore.pem"
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "90", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    line = ["openssl", "req", "-x509", *options, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(line, check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return both
