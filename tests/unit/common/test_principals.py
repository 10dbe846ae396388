import struct

import pytest

from common.contract import Credential, encode_struct
from common.errors import AuthenticationError
from common.principals import REMEMBERED_BYTES_MAX, Principals
from tests.unit.common.test_credential import World


class Client:
    """A client's connection, which notes whether its credentials count."""

    peer, tls, trusted = "127.0.0.1:1", None, False

    def trust(self):
        self.trusted = True

    def distrust(self):
        self.trusted = False


PLAIN = Client()


@pytest.fixture
def principals():
    world = World()
    made = Principals(world.view, world.clock)
    made.mint = lambda: encode_struct(Credential(**world.mint()._asdict()))
    return made


def padded(encoded: bytes, size: int) -> bytes:
    """The credential with an unknown field, which Thrift allows."""
    return encoded[:-1] + b"\x0b" + struct.pack(">hi", 99, size) + bytes(size) + b"\0"


def test_a_verified_credential_is_remembered(principals):
    encoded = principals.mint()
    first = principals.find(encoded, PLAIN)
    assert principals.find(encoded, PLAIN) is first and len(encoded) < REMEMBERED_BYTES_MAX


def test_padded_credentials_are_valid_and_leave_nothing_in_memory(principals):
    encoded = principals.mint()
    for size in range(REMEMBERED_BYTES_MAX, REMEMBERED_BYTES_MAX + 300):
        assert principals.find(padded(encoded, size), PLAIN).app == "shop"
    assert principals._remembered == {}


def test_a_connection_is_trusted_as_long_as_its_last_credential_is_valid(principals):
    connection, encoded = Client(), principals.mint()
    principals.find(encoded, connection)
    assert connection.trusted
    with pytest.raises(AuthenticationError):
        principals.find(encoded[:-40] + bytes(39) + b"\0", connection)
    assert not connection.trusted
    principals.find(encoded, connection)
    assert connection.trusted, "a remembered credential counts as well"
