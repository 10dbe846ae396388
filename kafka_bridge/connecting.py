"""The connection of a Kafka cluster from its definition in the configuration."""

from pathlib import Path

from common.config.definitions import KafkaClusterDefinition
from common.kafka.base import KafkaDriver
from common.kafka.connection import KafkaConnection, connection_faults
from common.kafka.drivers import open_driver
from common.kafka.errors import ClusterUnreachable


def connection_of(cluster: KafkaClusterDefinition) -> KafkaConnection:
    """Reads the password file. Raises ClusterUnreachable: the file cannot be read, or the options do not fit."""
    has_login = cluster.security.startswith("sasl")
    password = ""
    if has_login:
        try:
            password = Path(cluster.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterUnreachable(
                f'kafka "{cluster.name}": password_file {cluster.password_file}: it cannot be read: {error}'
            ) from error
    connection = KafkaConnection(
        name=cluster.name,
        bootstrap=tuple(cluster.bootstrap.split(",")),
        protocol=cluster.security.upper(),
        mechanism=cluster.sasl_mechanism if has_login else "",
        user=cluster.user if has_login else "",
        password=password,
        authority_file=Path(cluster.ca_file) if cluster.ca_file and cluster.security.endswith("ssl") else None,
    )
    if faults := connection_faults(connection):
        raise ClusterUnreachable(f'kafka "{cluster.name}": {"; ".join(faults)}')
    return connection


def driver_of(cluster: KafkaClusterDefinition) -> KafkaDriver:
    """Raises DriverMissing."""
    return open_driver("" if cluster.driver == "auto" else cluster.driver)
