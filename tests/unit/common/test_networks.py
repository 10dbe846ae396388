import pytest

from common.networks import is_within


@pytest.mark.parametrize(
    ("peer", "networks", "inside"),
    [
        ("10.1.2.3:80", ("10.0.0.0/8",), True),
        ("11.1.2.3:80", ("10.0.0.0/8",), False),
        ("11.1.2.3:80", ("10.0.0.0/8", "11.1.2.3/32"), True),
        ("11.1.2.3:80", (), True),
        ("2001:db8::1:4000", ("2001:db8::/32",), True),
        ("::ffff:10.1.2.3:80", ("10.0.0.0/8",), True),
        ("fe80::1%eth0:80", ("fe80::/10",), True),
        ("this machine", ("0.0.0.0/0", "::/0"), False),
        ("", ("0.0.0.0/0",), False),
    ],
)
def test_a_peer_is_inside_or_not(peer, networks, inside):
    assert is_within(peer, networks) == inside
