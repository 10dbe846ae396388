"""Where an application may be used from, how failed attempts are slowed, and which keys are in use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import auth_throttle as throttle_module
from common import key_uses as key_uses_module
from common.auth_throttle import FREE, PAUSE_S_FIRST, PAUSE_S_MAX, AuthThrottle
from common.callers import Origin
from common.errors import AuthenticationError
from common.key_uses import KeyUses
from common.net.tls import certificate_names


class Connection:
    """By TLS when there are names, which its certificate bears."""

    def __init__(self, peer="10.0.0.1:5000", names=()):
        self.peer, self.tls = peer, None
        if names:
            self.tls = Tls({"subjectAltName": tuple(("DNS", name) for name in names)})


class Tls:
    def __init__(self, certificate):
        self.getpeercert = lambda: certificate


@pytest.mark.parametrize(
    ("origin", "connection", "admits"),
    [
        (Origin(), Connection(), True),
        (Origin(addresses=("10.0.0.0/8",)), Connection(), True),
        (Origin(addresses=("11.0.0.0/8",)), Connection(names=("shop",)), False),
        (Origin(certificates=("shop", "shop-2")), Connection(names=("x", "shop-2")), True),
        (Origin(certificates=("shop",)), Connection(names=("shop.evil",)), False),
        (Origin(certificates=("shop",)), Connection(), False),
        (Origin(("10.0.0.0/8",), ("shop",)), Connection(names=("shop",)), True),
        (Origin(("11.0.0.0/8",), ("shop",)), Connection(names=("shop",)), False),
        (Origin(("10.0.0.0/8",), ("shop",)), Connection(), False),
    ],
)
def test_an_origin_asks_for_the_network_and_for_the_certificate(origin, connection, admits):
    assert origin.admits(connection) is admits
    if admits:
        origin.check("shop", connection)
    else:
        with pytest.raises(AuthenticationError, match="credential rejected: application shop"):
            origin.check("shop", connection)


def test_names_of_a_certificate_are_its_common_names_and_alternative_names():
    described = {
        "subject": ((("countryName", "DE"),), (("commonName", "shop"),)),
        "subjectAltName": (("DNS", "shop.example"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://example/shop")),
    }
    assert certificate_names(Tls(described)) == ("shop", "shop.example", "spiffe://example/shop")
    assert certificate_names(None) == certificate_names(Tls(None)) == certificate_names(Tls({})) == ()


@given(failures=st.integers(1, 100))
def test_the_first_failures_are_free_and_each_later_one_waits_no_less_than_the_one_before(failures):
    throttle = AuthThrottle()
    pauses = [throttle.failed("a:1") for _ in range(failures)]
    assert pauses[:FREE] == [0.0] * min(failures, FREE)
    assert pauses == sorted(pauses)
    assert all(PAUSE_S_FIRST <= pause <= PAUSE_S_MAX for pause in pauses[FREE:])
    assert throttle.failed("a:2") == 0.0, "another connection is not slowed"


def test_the_throttle_remembers_a_bounded_number_of_connections(monkeypatch):
    monkeypatch.setattr(throttle_module, "CONNECTIONS_MAX", 3)
    throttle = AuthThrottle()
    for _ in range(FREE):
        throttle.failed("a:1")
    for port in range(3):
        throttle.failed(f"b:{port}")
    assert throttle.failed("a:1") == 0.0


def test_the_last_use_of_a_key_is_kept_and_of_too_many_the_oldest_go(monkeypatch):
    monkeypatch.setattr(key_uses_module, "KEYS_MAX", 2)
    uses = KeyUses()
    for key, at_ms in (("k1", 1000), ("k2", 2000), ("k1", 3000), ("k3", 4000)):
        uses.note("shop", key, at_ms)
    (family,) = uses.collect()
    assert {sample.labels["key_id"]: sample.value for sample in family.samples} == {"k1": 3.0, "k3": 4.0}
