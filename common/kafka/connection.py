"""Address and login of a Kafka cluster, the same for both drivers."""

from dataclasses import dataclass, field
from pathlib import Path

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class KafkaConnection:
    """One cluster.

    Attributes:
        name: for error sentences.
        bootstrap: some of its brokers, as host:port; the others are learned from them.
        mechanism, user, password: only of the SASL protocols.
        authority_file: PEM certificates that sign the brokers'; None: those of the system. Only with TLS.
        authority_digest: of what that file held when it was read: other certificates make another connection.
        certificate_file, key_file: this side's certificate for a cluster that asks for one. Only with TLS.
        connect_timeout_s: how long opening a client may wait for the first broker.
    """

    name: str
    bootstrap: tuple[str, ...]
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    authority_file: Path | None = None
    authority_digest: str = ""
    certificate_file: Path | None = None
    key_file: Path | None = None
    connect_timeout_s: float = 10.0

    @property
    def uses_login(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def connection_faults(connection: KafkaConnection) -> list[str]:
    """All faults of the options, one sentence each; empty: they fit together."""
    faults = []
    if not connection.bootstrap:
        faults.append("bootstrap: no broker is given: use HOST:PORT, several with commas")
    faults += [f'bootstrap "{each}": use HOST:PORT' for each in connection.bootstrap if not _is_address(each)]
    if connection.protocol not in PROTOCOLS:
        faults.append(f'protocol "{connection.protocol}": use one of {", ".join(PROTOCOLS)}')
        return faults
    if connection.uses_login:
        if connection.mechanism not in MECHANISMS:
            faults.append(f'mechanism "{connection.mechanism}": use one of {", ".join(MECHANISMS)}')
        if not connection.user or not connection.password:
            faults.append(f"{connection.protocol} needs a user and a password")
    elif connection.mechanism or connection.user or connection.password:
        faults.append(f"mechanism, user and password have no use with {connection.protocol}: use a SASL protocol")
    if not connection.uses_tls and (connection.authority_file or connection.certificate_file or connection.key_file):
        faults.append(f"certificates have no use with {connection.protocol}: use SSL or SASL_SSL")
    if bool(connection.certificate_file) != bool(connection.key_file):
        faults.append("certificate and key are given together or not at all")
    return faults


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65_536
