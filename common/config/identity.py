"""The identity of a store: it tells a cluster's configuration from an empty, foreign or older one."""

import json
import secrets
from typing import NamedTuple

from common.config.errors import StoreDamaged


class StoreIdentity(NamedTuple):
    """Written with a store's first entry, and kept from then on.

    Attributes:
        cluster: random hex digits; two clusters differ.
        generation: raised only by an operator who restores the store or accepts its state: processes then follow it
            even where it is older than what they know.
    """

    cluster: str
    generation: int = 0

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


def new_identity() -> StoreIdentity:
    return StoreIdentity(secrets.token_hex(8))


def parse_identity(data: bytes, subject: str) -> StoreIdentity:
    """Raises StoreDamaged."""
    try:
        value = json.loads(data)
        return StoreIdentity(str(value["cluster"]), int(value["generation"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamaged(f"{subject}: damaged: it is not the identity of a store") from error
