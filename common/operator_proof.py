"""Proof that a request to the operator's port of a proxy comes from an operator.

The key is that of the proxy's machine, which operators make from the administrator's key. So a proxy that is taken over
has nothing by which other proxies can be drained. A proxy without it takes the cluster's key, which every proxy has.

proof = HMAC-SHA256(key, "penstock-ops/1\\n" + process + "\\n" + path + "\\n" + decimal(at_ms) + "\\n" + body), as hex. The
body names what is changed by an id that is given once, so that a repeated request changes nothing more.
"""

import hmac
import logging
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger("penstock.ops")

CONNECTIONS_PATH, CLOSE_PATH = "/connections", "/connections/close"
DELIVERIES_PATH = "/deliveries"
DRAIN_PATH, OUT, BACK = "/drain", "out", "back"
"""The page, and the words that take a proxy out of service and put it back, each before the turn of its present state."""

PROOF_HEADER, MACHINE_PROOF_HEADER, TIME_HEADER = "Penstock-Proof", "Penstock-Machine-Proof", "Penstock-Time"
"""The proof by the cluster's key, and that by the machine's. A proxy looks at the one of its own key."""
WINDOW_MS = 60_000


class ProxyKey(NamedTuple):
    """By which a proxy takes changes of operators."""

    secret: bytes
    is_of_machine: bool


class OperatorKeys(NamedTuple):
    """The keys of an operator. Either may be empty."""

    admin: bytes = b""
    cluster: bytes = b""

    def headers(self, process: str, path: str, at_ms: int, body: bytes) -> dict[str, str]:
        """Headers of a request to the process that reports under this name."""
        found = {TIME_HEADER: str(at_ms)}
        if self.cluster:
            found[PROOF_HEADER] = proof(self.cluster, process, path, at_ms, body)
        if self.admin:
            key = machine_key(self.admin, process.rpartition("/")[2])
            found[MACHINE_PROOF_HEADER] = proof(key, process, path, at_ms, body)
        return found


NO_KEYS = OperatorKeys()


def machine_key(admin_key: bytes, machine: str) -> bytes:
    """The key of a machine's proxies, as its file has it."""
    return hmac.new(admin_key, b"penstock-ops-key/1\n" + machine.encode(), "sha256").hexdigest().encode()


def read_proxy_key(file: str | None, cluster_key: bytes) -> ProxyKey:
    """The key of --ops-key. Warns where there is none. Raises OSError."""
    if file:
        return ProxyKey(Path(file).read_bytes().strip(), True)
    log.warning("every process that has the cluster key can drain this proxy and close its connections: use --ops-key")
    return ProxyKey(cluster_key, False)


def proof(key: bytes, process: str, path: str, at_ms: int, body: bytes) -> str:
    """The proof for one request, to the process that reports under this name."""
    head = f"penstock-ops/1\n{process}\n{path}\n{at_ms}\n".encode()
    return hmac.new(key, head + body, "sha256").hexdigest()


def proof_fault(key: ProxyKey, process: str, path: str, at: str, body: bytes, given: str, now_ms: int) -> str:
    """Why a request is refused; empty: it is proved."""
    if not (at.isascii() and at.isdigit() and len(at) < 20) or abs(now_ms - int(at)) > WINDOW_MS:
        return f"{TIME_HEADER} is more than {WINDOW_MS // 1000} s away from this machine's clock: set the clocks"
    if not hmac.compare_digest(proof(key.secret, process, path, int(at), body).encode(), given.encode()):
        header = MACHINE_PROOF_HEADER if key.is_of_machine else PROOF_HEADER
        used = "the administrator's key (--admin-key)" if key.is_of_machine else "the cluster's key"
        return f"{header} is wrong: use {used}, and the name of this process"
    return ""
