"""The application that commands act as: one per data directory and machine, made only when it is needed."""

import threading

import pytest
from click.testing import CliRunner

from common.config import open_store
from penstock.__main__ import cli
from penstock.terminal.exits import CommandError
from penstock.terminal.identity import OPERATOR, choose
from penstock.terminal.instance import Instance


@pytest.fixture
def url(tmp_path):
    (tmp_path / "config").mkdir()
    return f"file://{tmp_path}/config"


def applications(url) -> dict[str, int]:
    """Number of keys by application."""
    store = open_store(url)
    try:
        return {name: len(found.value["keys"]) for name, found in store.entries("application")}
    finally:
        store.close()


def operator(tmp_path, url, name, host, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: host)
    data = tmp_path / name
    data.mkdir(exist_ok=True)
    return choose(Instance(data, url, {}), None, None, None).credential()


def test_commands_of_many_machines_and_directories_do_not_replace_each_others_keys(tmp_path, url, monkeypatch):
    places = [("a", "one"), ("a", "two"), ("b", "one"), ("c", "one")]
    first = {place: operator(tmp_path, url, *place, monkeypatch).key_id for place in places[::2]}
    for place in places[2:]:
        operator(tmp_path, url, *place, monkeypatch)
    assert {place: operator(tmp_path, url, *place, monkeypatch).key_id for place in first} == first
    assert all(name.startswith(f"{OPERATOR}.one.") for name in applications(url))
    assert set(applications(url).values()) == {1}


def test_a_key_that_was_revoked_is_replaced_by_another_one_of_the_same_application(tmp_path, url, monkeypatch):
    first = operator(tmp_path, url, "a", "one", monkeypatch)
    result = CliRunner().invoke(cli, ["app", "revoke", first.app, first.key_id, "--config", url])
    assert result.exit_code == 0, result.output
    again = operator(tmp_path, url, "a", "one", monkeypatch)
    assert again.app == first.app and again.key_id != first.key_id


def test_the_application_of_an_earlier_version_gets_its_grant_for_dead_letters_and_keeps_its_key(
    tmp_path, url, monkeypatch
):
    first = operator(tmp_path, url, "a", "one", monkeypatch)
    store = open_store(url)
    found = store.get("application", first.app)
    del found.value["pull_grants"]
    store.put("application", first.app, found.value, found.version)
    assert operator(tmp_path, url, "a", "one", monkeypatch).key_id == first.key_id
    value = store.get("application", first.app).value
    assert (value["grants"], value["pull_grants"]) == ([["send", "*"], ["pull", "*"]], [["dead_letters", "*"]])
    store.close()


@pytest.mark.parametrize(
    "command", [["send", "orders", "x", "--producer"], ["pull", "orders", "-g", "readers", "--consumer"]]
)
def test_a_command_that_reaches_no_proxy_leaves_nothing_in_the_configuration(tmp_path, url, command):
    result = CliRunner().invoke(cli, [*command, "127.0.0.1:1", "--config", url, "--data", str(tmp_path)])
    assert result.exit_code == 5, result.output
    assert applications(url) == {} and not (tmp_path / "operator.key").exists()


def test_a_key_that_cannot_be_kept_is_taken_back(tmp_path, url):
    with pytest.raises(CommandError, match="cannot be written"):
        choose(Instance(tmp_path / "nowhere", url, {}), None, None, None).credential()
    assert applications(url) == {}


def test_commands_that_use_a_directory_for_the_first_time_at_the_same_moment_share_one_key(tmp_path, url):
    found = []
    first = [
        threading.Thread(
            target=lambda: found.append(choose(Instance(tmp_path, url, {}), None, None, None).credential().key_id)
        )
        for _ in range(8)
    ]
    for each in first:
        each.start()
    for each in first:
        each.join(60)
    assert len(found) == 8 and len(set(found)) == 1
    assert set(applications(url).values()) == {1}
