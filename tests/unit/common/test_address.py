"""Where a process listens, read and shown; a socket file of this machine."""

from argparse import ArgumentTypeError

import gevent
import pytest

from common.address import (
    PATH_BYTES_MAX,
    Address,
    connect,
    engine_address,
    engine_addresses,
    host_and_port,
    is_own_machine,
)
from common.net.server import listen_file


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9700", "[::1]:9700", "engine.example:0", "unix:/var/lib/penstock/engine.sock"]
)
def test_an_address_is_shown_as_it_was_written(text):
    assert str(engine_address(text)) == text


@pytest.mark.parametrize("text", ["", "9700", ":9700", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_no_host_and_port_is_told_so(text):
    with pytest.raises(ArgumentTypeError, match="is not an address: use HOST:PORT"):
        host_and_port(text)


@pytest.mark.parametrize("path", ["", "relative/engine.sock", "/" + "x" * PATH_BYTES_MAX])
def test_a_socket_files_path_is_absolute_and_fits(path):
    with pytest.raises(ArgumentTypeError, match="is not a socket file: use unix:/PATH with at most 107 bytes"):
        engine_address("unix:" + path)


def test_a_socket_file_is_closed_to_other_users_and_replaces_one_that_was_left_behind(tmp_path):
    path = str(tmp_path / "engine.sock")
    listen_file(path).close()
    listener = listen_file(path)
    assert (tmp_path / "engine.sock").stat().st_mode & 0o777 == 0o600
    with connect(Address(path), 1.0) as client:
        accepted, _ = listener.accept()
        client.sendall(b"here")
        with gevent.Timeout(5):
            assert accepted.recv(4) == b"here"
        accepted.close()
    listener.close()


def test_a_path_that_names_anything_but_a_socket_is_left_alone(tmp_path):
    path = tmp_path / "cluster.key"
    path.write_bytes(b"secret")
    with pytest.raises(FileExistsError, match="is not a socket"):
        listen_file(str(path))
    assert path.read_bytes() == b"secret"


def test_a_socket_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        connect(Address(str(tmp_path / "none")), 1.0)


def test_engines_are_one_address_or_those_of_the_brokers_of_a_group():
    assert engine_addresses("10.0.0.1:9702") == Address("10.0.0.1", 9702)
    assert engine_addresses("10.0.0.1:9702,unix:/run/b") == (Address("10.0.0.1", 9702), Address("/run/b"))
    with pytest.raises(ArgumentTypeError):
        engine_addresses("10.0.0.1:9702,")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1", "localhost", "/run/engine.sock"])
def test_what_is_on_this_machine_is_known(host):
    assert is_own_machine(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "host.invalid", "a" * 300])
def test_what_is_elsewhere_or_unknown_is_not_on_this_machine(host):
    assert not is_own_machine(host)
