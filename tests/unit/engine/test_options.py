"""Options of an engine that depend on each other."""

import pytest

from engine.options import parse


@pytest.fixture
def command(tmp_path):
    key = tmp_path / "cluster.key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    return ["--data", str(tmp_path), "--cluster-key", str(key), "--config", tmp_path.as_uri()]


def test_a_broker_is_reached_where_it_listens_or_at_the_address_that_is_given(command):
    assert parse([*command, "--listen", "10.0.0.1:9702", "--broker", "a"]).address is None
    found = parse([*command, "--listen", "0.0.0.0:9702", "--broker", "a", "--address", "a.example:9702"])
    assert str(found.address) == "a.example:9702"
    assert str(parse([*command, "--listen", "[::]:9702", "--broker", "a", "--address", "unix:/a.sock"]).address) == (
        "unix:/a.sock"
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--listen", "0.0.0.0:9702", "--broker", "a"], "--listen 0.0.0.0:9702: other brokers cannot reach it there"),
        (["--listen", "[::]:9702", "--broker", "a"], "--listen [::]:9702: other brokers cannot reach it there"),
        (["--listen", "h:1", "--address", "h:1"], "--address: needs --broker NAME"),
        (["--listen", "h:1", "--broker", "a", "--address", "unix:a"], "'unix:a' is not a socket file"),
        (["--listen", "h:1", "--also-cluster-key"], "--also-cluster-key: needs --replica-key or --controller-key"),
    ],
)
def test_an_address_that_others_cannot_use_is_refused_by_name(command, options, fault, capsys):
    with pytest.raises(SystemExit):
        parse([*command, *options])
    assert fault in capsys.readouterr().err


def test_two_keys_with_the_same_secret_are_refused_and_each_is_checked_as_a_secret(command, tmp_path, capsys):
    replica, controller = tmp_path / "replica.key", tmp_path / "controller.key"
    for path, content in ((replica, "r" * 32), (controller, "c" * 32)):
        path.write_text(content)
        path.chmod(0o600)
    options = [*command, "--listen", "h:1", "--replica-key", str(replica), "--controller-key", str(controller)]
    assert parse([*options, "--also-cluster-key"]).also_cluster_key
    for content, fault in (
        ("k" * 32, "the same secret as --cluster-key"),
        ("r" * 32, "the same secret as --replica-key"),
    ):
        controller.write_text(content)
        with pytest.raises(SystemExit):
            parse(options)
        assert f"--controller-key {controller}: {fault}" in capsys.readouterr().err
    replica.chmod(0o644)
    with pytest.raises(SystemExit):
        parse(options)
    assert f"--replica-key {replica}: mode 0644 lets other users read" in capsys.readouterr().err
