"""Kafka clusters that topics may have as their home: addresses and credentials."""

from dataclasses import dataclass
from typing import ClassVar

from common.config.checks import Checks
from common.config.definition import Definition
from common.config.setting import setting
from common.config.text_values import AddressList, FilePath, TextValue
from common.config.values import OneOf

BOOTSTRAP_MAX = 16
CLUSTERS_MAX = 1_000
SECURITIES = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DRIVERS = ("auto", "kafka-python", "confluent-kafka")


@dataclass(frozen=True)
class KafkaClusterDefinition(Definition):
    """One Kafka cluster, as its bridge connects to it. It holds the paths of secrets, never a secret."""

    kind: ClassVar[str] = "kafka"

    bootstrap: str = setting(
        "",
        AddressList("", BOOTSTRAP_MAX),
        "Find the cluster's brokers by asking one of these.",
        unset="none: it must be given",
        is_stored_always=True,
    )
    security: str = setting(
        "plaintext",
        OneOf("", SECURITIES),
        "Connect with this protocol: with or without TLS, with or without SASL.",
    )
    sasl_mechanism: str = setting(
        "PLAIN",
        OneOf("", MECHANISMS),
        "Authenticate by this SASL mechanism where the protocol has SASL.",
    )
    user: str = setting(
        "",
        TextValue(),
        "Authenticate as this user where the protocol has SASL.",
        unset="none: it must be given with SASL",
    )
    password_file: str = setting(
        "",
        FilePath(),
        "Read the user's password from this file on the bridge's machine.",
        unset="none: it must be given with SASL",
    )
    ca_file: str = setting(
        "",
        FilePath(),
        "Trust the brokers' certificates by the PEM authorities in this file on the bridge's machine.",
        unset="none: those of the machine",
    )
    driver: str = setting(
        "auto",
        OneOf("", DRIVERS),
        "Use this client library.",
        more="`auto` takes confluent-kafka where it is installed, else kafka-python; with both, kafka-python reads partitions.",
    )

    def check_together(self, checks: Checks) -> None:
        if not self.bootstrap and not checks.faults:
            checks.fault("bootstrap", "it is missing: use HOST:PORT, several separated by commas")
        if self.security.startswith("sasl") and not (self.user and self.password_file):
            checks.fault("security", f"{self.security} needs user and password_file")
