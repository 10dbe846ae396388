"""Directory, lock, ports and files of `penstock up`, each by itself."""

import json
import os
import signal
import socket
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from common.config import open_store
from common.ops.page_reader import PageAnswer
from common.secret_file import KEY_BYTES, ensure_key
from penstock.up import child as logs
from penstock.up import files, ports, run, status
from penstock.up.banner import banner
from penstock.up.child import Child
from penstock.up.directory import prepare
from penstock.up.errors import AlreadyRunning, PortTaken, UpError
from penstock.up.lock import DirectoryLock, is_held
from penstock.up.plan import make_plan
from penstock.up.run import names_kafka, root_keys
from penstock.up.settings import with_kafka_files, with_secrets_key
from penstock.up.signals import SignalPipe
from tests.unit.penstock.fakes import fake_plan

HOST = "127.0.0.1"
HOSTS = ports.Hosts()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_and_the_key_are_closed_to_others_and_the_key_is_kept(tmp_path):
    prepare(tmp_path / "data")
    key = ensure_key(tmp_path / "data" / "cluster.key")
    first = key.read_bytes()
    assert (mode(tmp_path / "data"), mode(key), len(first)) == (0o700, 0o600, KEY_BYTES)
    assert ensure_key(tmp_path / "data" / "cluster.key").read_bytes() == first


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path):
    with DirectoryLock(tmp_path) as lock:
        lock.note({"pid": 4711})
        with pytest.raises(AlreadyRunning, match="pid 4711"), DirectoryLock(tmp_path):
            pass
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_auto_ports_are_those_of_the_last_run(tmp_path):
    first = ports.choose("auto", HOSTS, {})
    assert len(set(first.values())) == len(ports.NAMES)
    assert ports.choose("auto", HOSTS, first) == first


def test_without_the_extra_up_says_so_and_starts_no_console(monkeypatch, capsys):
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "sqlalchemy" else object())
    assert not run.has_console()
    assert (
        capsys.readouterr().out
        == "console: not started, sqlalchemy is not installed: pip install 'penstock[console]'\n"
    )


def test_the_console_has_one_port_a_folder_the_engines_address_and_the_controllers_key(tmp_path):
    chosen = ports.choose("auto", HOSTS, {}, ports.names_of(1, has_console=True))
    assert set(chosen) - set(ports.NAMES) == {"console"}
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "cluster.key", chosen, None)
    (console,) = [each for each in plan.children if not each.is_essential]
    assert console.command[-4:-2] == ["--engine", f"{HOST}:{chosen['engine']}"]
    assert console.command[-2:] == ["--controller-key", str(tmp_path / "controller.key")]
    assert str(tmp_path / "console") in console.command


def test_the_consoles_address_is_the_first_line():
    place = {"host": HOST, "port": 1}
    facts = dict.fromkeys(("producer_proxy", "consumer_proxy", "engine"), place)
    facts |= {"ops": dict.fromkeys(facts, 2), "data": "/d"}
    assert banner(facts, 1.0, "http://x/link/y").startswith("Console: http://x/link/y\nPenstock serves")
    assert banner(facts, 1.0).startswith("Penstock serves")


def test_ports_of_the_last_run_stay_when_a_process_is_added():
    first = ports.choose("auto", HOSTS, {})
    grown = ports.choose("auto", HOSTS, first, ports.names_of(1, has_kafka=True))
    assert grown.items() > first.items() and len(set(grown.values())) == len(first) + 2
    assert ports.choose(None, HOSTS, grown) == first, "and when it is left out again"


def test_auto_ports_change_when_one_was_taken_meanwhile():
    first = ports.choose("auto", HOSTS, {})
    with socket.create_server((HOST, first["engine"])):
        assert ports.choose("auto", HOSTS, first)["engine"] != first["engine"]


def test_a_base_that_is_in_use_is_named_and_refused():
    base = ports.choose("auto", HOSTS, {})["engine"]
    with socket.create_server((HOST, base)), pytest.raises(PortTaken, match=f"port {base} ") as taken:
        ports.choose(str(base), HOSTS, {})
    assert taken.value.exit_code == 4


@pytest.mark.parametrize("text", ["", "-1", "0", "65535", "http", "7.5"])
def test_a_base_that_is_no_port_is_refused(text):
    with pytest.raises(UpError) as refused:
        ports.choose(text, HOSTS, {})
    assert refused.value.exit_code == 2


def test_only_the_proxies_listen_where_applications_reach_them(tmp_path):
    names = ports.names_of(1, 2, has_kafka=True, has_console=True)
    hosts = ports.Hosts(applications="0.0.0.0")
    plan = make_plan(
        tmp_path / ("x" * 100), hosts, None, tmp_path / "key", ports.any_free(hosts, names), None, replicas=2
    )
    addresses = {
        (child.name, option): child.command[child.command.index(option) + 1].rpartition(":")[0]
        for child in plan.children
        for option in ("--listen", "--ops")
        if option in child.command
    }
    assert len(addresses) >= 12
    assert {place for place, host in addresses.items() if host != HOST} == {
        ("producer_proxy", "--listen"),
        ("consumer_proxy", "--listen"),
    }
    described = files.describe(plan, [Child(each) for each in plan.children])
    assert files.ops_host(described, "producer_proxy") == HOST and described["producer_proxy"]["host"] == "0.0.0.0"


def test_each_kind_of_port_has_an_address_of_its_own():
    hosts = ports.Hosts("a", "e", "o", "c")
    of = {name: hosts.of(name) for name in ports.names_of(1, 2, has_kafka=True, has_console=True)}
    assert (of["producer_proxy"], of["consumer_proxy"]) == ("a", "a")
    assert {of[name] for name in ("engine", "engine-r2", "kafka_bridge")} == {"e"} and of["console"] == "c"
    assert {host for name, host in of.items() if name.endswith("_ops")} == {"o"}


def test_the_facts_of_an_earlier_up_name_one_host_for_all():
    assert files.ops_host({"engine": {"host": "10.0.0.1", "port": 1}}, "engine") == "10.0.0.1"


def test_proxies_find_the_engine_by_its_socket_file_and_all_share_config_and_key(tmp_path):
    chosen = ports.any_free(HOSTS)
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "cluster.key", chosen, None)
    for child in plan.children:
        assert f"file://{tmp_path}/config" in child.command and str(tmp_path / "cluster.key") in child.command
        assert f"{HOST}:{chosen[child.name]}" in child.command
    engine, *proxies = plan.children
    assert engine.command[-2:] == ["--socket-file", f"{tmp_path}/engine.sock"]
    assert all(f"unix:{tmp_path}/engine.sock" in child.command for child in proxies)


def test_proxies_controllers_and_the_other_brokers_find_each_replica_by_its_socket_file(tmp_path):
    names = ports.names_of(1, 2)
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "key", ports.any_free(HOSTS, names), None, replicas=2)
    found = {each.name: each.command for each in plan.children}
    for name in ("engine", "engine-r2"):
        file = f"{tmp_path}/{name}.sock"
        assert found[name][found[name].index("--address") + 1] == f"unix:{file}"
        assert found[name][-2:] == ["--socket-file", file]
    both = f"unix:{tmp_path}/engine.sock,unix:{tmp_path}/engine-r2.sock"
    assert both in found["producer_proxy"] and both in found["consumer_proxy"]


def test_engines_of_several_groups_have_no_socket_file_unless_they_have_replicas(tmp_path):
    for replicas, has in ((1, False), (2, True)):
        names = ports.names_of(2, replicas)
        plan = make_plan(
            tmp_path, HOSTS, None, tmp_path / "key", ports.any_free(HOSTS, names), None, 2, replicas=replicas
        )
        engines = [each.command for each in plan.children if each.name.startswith("engine")]
        assert ["--socket-file" in each for each in engines] == [has] * 2 * replicas
        proxies = [each.command for each in plan.children if each.name.endswith("_proxy")]
        assert not any("--engine" in each for each in proxies), "they find the groups in the configuration"


def test_a_bridge_runs_where_there_are_ports_for_it_and_the_producer_proxy_finds_it_by_its_socket_file(tmp_path):
    chosen = ports.any_free(HOSTS, ports.names_of(1, has_kafka=True))
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "cluster.key", chosen, None)
    bridge, producer = (
        next(each for each in plan.children if each.name == name) for name in ("kafka_bridge", "producer_proxy")
    )
    address = f"unix:{tmp_path}/kafka_bridge.sock"
    assert address in bridge.command and producer.command[-2:] == ["--kafka-bridge", address]
    assert f"{HOST}:{chosen['kafka_bridge_ops']}" in bridge.command and f"file://{tmp_path}/config" in bridge.command
    assert bridge.stop_rank > producer.stop_rank, "the proxies stop first"
    assert [each.name for each in plan.children if "--kafka-bridge" in each.command] == ["producer_proxy"]


def test_a_bridge_reads_files_of_clusters_beside_the_data_directory_or_where_the_operator_says(tmp_path):
    chosen = ports.any_free(HOSTS, ports.names_of(1, has_kafka=True))
    for has_kafka, given, expected in (
        (True, (), [str(tmp_path), "/etc/penstock"]),
        (True, (tmp_path / "a,b", tmp_path / "c"), [f"{tmp_path}/a,b", f"{tmp_path}/c"]),
        (False, (tmp_path / "c",), [f"{tmp_path}/c"]),
    ):
        its = chosen if has_kafka else ports.any_free(HOSTS)
        made = with_kafka_files(make_plan(tmp_path / "data", HOSTS, None, tmp_path / "cluster.key", its, None), given)
        bridge = made.later or next(each for each in made.children if each.name == "kafka_bridge")
        rooms = [bridge.command[at + 1] for at, part in enumerate(bridge.command) if part == "--kafka-files"]
        assert rooms == expected
        assert not any("--kafka-files" in each.command for each in made.children if each.name != "kafka_bridge")


def test_without_a_kafka_cluster_there_is_no_bridge_but_a_plan_of_one_that_the_producer_proxy_would_find(tmp_path):
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "cluster.key", ports.any_free(HOSTS), None)
    assert {each.name for each in plan.children} == {"engine", "producer_proxy", "consumer_proxy"}
    producer = next(each for each in plan.children if each.name == "producer_proxy")
    assert plan.later.name == "kafka_bridge" and producer.command[-1] in plan.later.command
    assert files.describe(plan, [])[files.LATER] == "kafka_bridge"
    assert files.LATER not in files.describe(plan, [Child(plan.later)])
    assert not names_kafka(f"file://{tmp_path}/config")
    with closing(open_store(f"file://{tmp_path}/config")) as store:
        store.put("kafka", "main", {"bootstrap": "k:1"}, 0)
    assert names_kafka(f"file://{tmp_path}/config")


def test_engines_are_told_by_what_messages_are_to_be_looked_up_and_proxies_are_not(tmp_path):
    names = ports.names_of(2)
    plan = make_plan(
        tmp_path, HOSTS, None, tmp_path / "key", ports.any_free(HOSTS, names), None, 2, ["--look-up", "none"]
    )
    told = [child.name for child in plan.children if child.command.count("--look-up") == 1]
    assert told == [child.name for child in plan.children if child.name.startswith("engine")] and len(told) == 2


def test_where_the_socket_files_path_would_be_too_long_proxies_use_tcp(tmp_path):
    chosen = ports.any_free(HOSTS)
    plan = make_plan(tmp_path / ("x" * 100), HOSTS, None, tmp_path / "cluster.key", chosen, None)
    assert "--socket-file" not in plan.children[0].command
    assert all(f"{HOST}:{chosen['engine']}" in child.command for child in plan.children[1:])


def test_files_tell_addresses_and_pids_and_vanish_with_the_lock(tmp_path):
    plan = replace(fake_plan(tmp_path), ready_file=tmp_path / "ready.json")
    children = [Child(each) for each in plan.children]
    for index, child in enumerate(children):
        child.facts = {"host": HOST, "port": 1000 + index, "ops_port": 2000 + index}
    with DirectoryLock(tmp_path):
        files.write_all(plan, children)
        facts = json.loads((tmp_path / "ready.json").read_text())
        assert facts["engine"] == {"host": HOST, "port": 1000}
        assert facts["ops"]["consumer_proxy"] == 2002
        assert set(facts["pids"]) == {"up", "engine", "producer_proxy", "consumer_proxy"}
        assert files.read_running(tmp_path) == facts
    assert files.read_running(tmp_path) is None


@pytest.mark.parametrize("has_room", [True, False])
def test_a_log_that_grows_while_its_process_runs_stays_within_bounds(tmp_path, monkeypatch, has_room):
    monkeypatch.setattr(logs, "LOG_BYTES_MAX", 1000)
    if not has_room:
        monkeypatch.setattr(logs.shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError(28, "no room")))
    path = tmp_path / "engine.log"
    with logs.open_log(path) as log:
        log.write(b"a line\n" * 100)
        logs.trim_log(path)
        assert path.stat().st_size == 700
        log.write(b"a line\n" * 100)
        logs.trim_log(path)
        log.write(b"goes on\n")
    assert path.read_bytes() == b"goes on\n"
    older = tmp_path / "engine.log.1"
    assert older.exists() == has_room and (not has_room or older.stat().st_size == 1400)


@pytest.mark.parametrize(
    ("answer", "ready", "notes"),
    [
        ((200, '{"ready": true, "faults": {}, "notes": {}, "checks": []}'), "yes", {}),
        ((200, '{"ready": true, "faults": {}, "notes": {"certificate": "ends"}}'), "yes", {"certificate": "ends"}),
        ((503, '{"ready": false, "faults": {"engine": "down"}, "notes": {}}'), "engine: down", {}),
        ((200, "what"), "/readyz answers 'what'", {}),
        ((404, "no such page"), "no such page", {}),
    ],
)
def test_the_state_of_a_process_is_what_its_page_says_with_its_notes(monkeypatch, answer, ready, notes):
    monkeypatch.setattr(status, "read_page", lambda address, path: PageAnswer(*answer))
    assert status.readiness_at((HOST, 1)) == (ready, notes)


def test_the_state_of_a_process_without_a_page_is_that_there_is_no_answer():
    ready, notes = status.readiness_at((HOST, 1))
    assert ready.startswith("no answer (") and notes == {}


@pytest.mark.parametrize(("is_terminal", "stops", "looks"), [(True, 1, 0), (False, 0, 1)])
def test_a_hang_up_stops_up_on_a_terminal_and_lets_a_service_look_again(monkeypatch, is_terminal, stops, looks):
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    with SignalPipe() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert (signals.stops, signals.looks) == (stops, looks)


def test_proxies_and_console_get_the_root_keys_and_no_other_process(tmp_path):
    names = ports.names_of(1, has_kafka=True, has_console=True)
    plan = make_plan(tmp_path, HOSTS, None, tmp_path / "cluster.key", ports.any_free(HOSTS, names), None, replicas=1)
    made = with_secrets_key(plan, tmp_path / "secrets.key")
    told = {child.name for child in made.children if "--secrets-key" in child.command}
    assert told == {"producer_proxy", "consumer_proxy", "console"} < {child.name for child in made.children}
    assert files.describe(made, [])["secrets_key"] == str(tmp_path / "secrets.key")
    assert with_secrets_key(plan, None) is plan and "secrets_key" not in files.describe(plan, [])


def test_root_keys_are_made_once_and_only_for_a_configuration_of_its_own(tmp_path):
    assert root_keys(tmp_path, "zookeeper://m1/penstock") is None, "proxies of other machines would not have them"
    made = root_keys(tmp_path, None)
    content = made.read_bytes()
    assert (len(content), made.stat().st_mode & 0o777) == (KEY_BYTES, 0o600)
    assert root_keys(tmp_path, None).read_bytes() == content
    assert root_keys(tmp_path, "zookeeper://m1/penstock") == made, "an operator has put it there"
