"""Clients that are connected to the proxies, as pages show them, by the functions behind `penstock connections`."""

from collections.abc import Mapping

from common.admin.connections import (
    ConnectionRow,
    ConnectionsTold,
    close_connection,
    find_connection,
    list_connections,
)
from common.admin.deliveries import DeliveriesTold, list_deliveries
from common.config.errors import ConfigError
from common.operator_proof import OperatorKeys
from console.installation.configuration import Configuration

KEY_MISSING = "The console has no admin key: start it with --admin-key, or use penstock connections close."


class ClientConnections:
    """
    Args:
        keys: by which proxies take the request to close a connection; without any the console may close none.
    """

    def __init__(self, configuration: Configuration, keys: OperatorKeys) -> None:
        self._configuration, self._keys = configuration, keys

    @property
    def may_close(self) -> bool:
        """Whether the console has what closing needs."""
        return any(self._keys)

    def told(self, wanted: Mapping[str, str], limit: int) -> ConnectionsTold:
        """The wanted connections. Never raises: a store that is away is one of the faults."""
        try:
            return list_connections(self._configuration.store, wanted, limit)
        except ConfigError as error:
            return ConnectionsTold(faults=[str(error)])

    def deliveries(self, topic: str, queue: int, offset: int) -> DeliveriesTold:
        """The deliveries of one message that the consumer proxies remember. Never raises."""
        try:
            return list_deliveries(self._configuration.store, topic, queue, offset)
        except ConfigError as error:
            return DeliveriesTold(faults=[str(error)])

    def find(self, id: str) -> ConnectionRow:
        """Raises EntryNotFound, InvalidEntry, ProxyPageError, ConfigError."""
        return find_connection(self._configuration.store, id)

    def close(self, who: str, id: str) -> ConnectionRow:
        """Close it, with the person as the author. Raises as `close_connection`."""
        return close_connection(self._configuration.admin(who), self._keys, id)
