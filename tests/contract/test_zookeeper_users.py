"""Two users of a real ZooKeeper: proxies read the configuration and write their reports, the others write all of it."""

import itertools
import json
import logging
import os
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from common.admin import store_users, topics, upkeep
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.clock import SystemClock
from common.cluster.coordination import Registration
from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.zookeeper_coordination import ZooKeeperCoordination
from common.config.definitions import Fence
from common.config.ended_fences import end_fence, topic_in
from common.config.engine_records import EngineRecords
from common.config.errors import AccessDenied, InvalidEntry, StoreUnavailable, VersionConflict
from common.config.health import config_health
from common.config.store import KINDS, Change
from common.config.view import ConfigView
from common.config.zookeeper_options import ZooKeeperOptions
from common.config.zookeeper_store import ZooKeeperStore
from penstock.__main__ import cli
from penstock.doctor.access import access
from producer_proxy.journal.registration import JournalRegistration
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

CHROOTS = itertools.count()
FENCE = Fence("shop", "shop.1", 5_000)
NEVER = 2**31 - 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


class Users:
    """A chroot, and files with the passwords of its users.

    Attributes:
        writer, proxy: options of a process of either kind.
    """

    def __init__(self, server, folder) -> None:
        self._folder, self._opened = folder, []
        self.chroot = f"/users/{next(CHROOTS)}"
        self.writer = ZooKeeperOptions(server.address, self.chroot, auth_file=self.file("writer", "penstock:first"))
        self.proxy = replace(self.writer, auth_file=self.file("proxy", "proxies:second"))

    def file(self, name, text) -> str:
        path = self._folder / name
        path.touch(0o600)
        path.write_text(text)
        return str(path)

    def open(self, options, *, is_proxy=False) -> ZooKeeperStore:
        self._opened.append(ZooKeeperStore(options, is_proxy))
        return self._opened[-1]

    def open_proxy(self) -> ZooKeeperStore:
        return self.open(self.proxy, is_proxy=True)

    def coordination(self, options) -> ZooKeeperCoordination:
        self._opened.append(ZooKeeperCoordination(options))
        return self._opened[-1]

    def close(self) -> None:
        for each in reversed(self._opened):
            each.close()


@pytest.fixture
def users(server, tmp_path):
    made = Users(server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def admin(users):
    """A configuration that has been in use with one user, and has two now."""
    made = Administrator(users.open(users.writer), "test")
    topics.create(made, ["orders"], TopicSettings())
    made.store.report_applied("engine@a:1/m", {"topic": 1})
    controller = users.coordination(users.writer)
    controller.stand("c1")
    controller.register("g", "a", Registration(1, "a:9702"))
    controller.write("g", GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 1}), 0)
    until(controller.is_controller, "the election")
    until(lambda: controller.brokers("g"), "the registration")
    store_users.set_users(made, readers=["proxies:second"])
    return made


def nodes(client, path):
    yield path
    for name in client.get_children(path):
        yield from nodes(client, f"{path}/{name}")


def test_a_proxy_reads_all_and_changes_nothing_but_reports_journals_and_its_claims(admin, users):
    proxy = users.open_proxy()
    assert topics.show(Administrator(proxy, "test"), "orders")[0].name == "orders"
    proxy.report_applied("producer_proxy@a:2/m", {"topic": 1})
    proxy.report_applied("producer_proxy@a:2/m", {"topic": 2})
    assert admin.store.applied()["producer_proxy@a:2/m"].version == {"topic": 2}
    assert proxy.claim("buffer/slot/0", by_proxy=True) and not admin.store.claim("buffer/slot/0", by_proxy=True)
    proxy.release("buffer/slot/0")
    proxy.leave("producer_proxy@a:2/m")
    assert set(admin.store.members()) == {"engine@a:1/m"}
    for kind in KINDS:
        if not KINDS[kind].written_by_proxies:
            with pytest.raises(AccessDenied, match="penstock config access"):
                proxy.put(kind, "evil", {}, 0)
    with pytest.raises(AccessDenied):
        proxy.delete("topic", "orders", proxy.get("topic", "orders").version)
    with pytest.raises(AccessDenied):
        proxy.claim("migration/shop")
    with pytest.raises(AccessDenied):
        proxy.set_users(["proxies:second"], None)


def test_no_node_but_those_of_reports_can_be_made_changed_or_deleted_by_a_proxy(admin, users, server):
    """Also with the password that all processes share for reports: each node is tried, elections and records, too."""
    free = {"applied", "members", "proxy_claims"}
    files = {name for name, kind in KINDS.items() if kind.written_by_proxies}
    thief = KazooClient(server.address, auth_data=[("digest", "proxies:second")])
    thief.start()
    try:
        thief.add_auth("digest", thief.get(f"{users.chroot}/access")[0].decode())
        tried = list(nodes(admin.store._client, users.chroot))
        kinds = {path.removeprefix(users.chroot).strip("/").split("/")[0] for path in tried}
        assert {"topic", "replication", "cluster", "audit", "access", *free, *files} <= kinds
        assert any("/controllers/" in path for path in tried) and f"{users.chroot}/replication/groups/g/record" in tried
        for path in tried:
            place, _, node = path.removeprefix(users.chroot).strip("/").partition("/")
            if place not in free and not (place in files and node):
                with pytest.raises(NoAuthError):
                    thief.set(path, b"", version=NEVER)
                with pytest.raises(NoAuthError):
                    thief.create(f"{path}/evil", b"")
                with pytest.raises(NoAuthError):
                    thief.set_acls(path, OPEN_ACL_UNSAFE)
            if place not in free or not node:
                with pytest.raises(NoAuthError):
                    thief.delete(path, version=NEVER)
            elif node:
                with pytest.raises(BadVersionError):
                    thief.delete(path, version=NEVER)
        with pytest.raises(NodeExistsError):
            thief.create(f"{users.chroot}/applied/{thief.get_children(f'{users.chroot}/applied')[0]}", b"")
    finally:
        thief.stop()
        thief.close()


def test_every_node_has_the_list_of_its_place_also_those_made_later_and_strangers_have_none(admin, users, server):
    proxy = users.open_proxy()
    proxy.report_applied("producer_proxy@a:2/m", {"topic": 1})
    other = users.open(users.writer)
    topics.create(Administrator(other, "test"), ["bills", "carts"], TopicSettings())
    other.report_applied("kafka_bridge@a:3/m", {"topic": 1})
    other.claim("copy_out/orders")
    controller = users.coordination(users.writer)
    controller.register("h", "b", Registration(1, "b:9702"))
    until(lambda: controller.brokers("h"), "the registration")
    assert upkeep.verify(admin.store) == []
    assert (
        set(proxy.applied()) == set(other.applied()) == {"engine@a:1/m", "kafka_bridge@a:3/m", "producer_proxy@a:2/m"}
    )
    stranger = KazooClient(server.address)
    stranger.start()
    try:
        for path in nodes(admin.store._client, users.chroot):
            for call in (stranger.get, stranger.get_acls, stranger.get_children):
                with pytest.raises(NoAuthError):
                    call(path)
    finally:
        stranger.stop()
        stranger.close()


def test_many_requests_that_are_denied_at_once_end_at_once(admin, users):
    proxy, errors = users.open_proxy(), []

    def change():
        for _ in range(20):
            try:
                proxy.put("topic", "evil", {}, 0)
            except AccessDenied as error:
                errors.append(error)

    threads = [threading.Thread(target=change) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 120


def test_a_journal_registers_and_tells_and_an_operator_answers_it(admin, users, tmp_path):
    journal = JournalRegistration(users.open_proxy(), "producer_proxy@a:2/m", tmp_path)
    journal.make()
    journal.tell({"topics": {}})
    ((name, found),) = admin.store.entries("journal")
    admin.store.put("journal", name, {**found.value, "compared": [["orders", 0, 1, 2]]}, found.version)
    assert journal.compared() == {("orders", 0, 1, 2)}
    journal.end()
    assert admin.store.names("journal") == [] and upkeep.verify(admin.store) == []


def fence(admin):
    found = admin.store.get("topic", "orders")
    admin.store.put("topic", "orders", {**found.value, "fence": FENCE.to_value()}, found.version)


def test_a_proxy_ends_a_fence_that_it_may_not_remove_and_all_views_show_it(admin, users):
    fence(admin)
    proxy = users.open_proxy()
    with closing(ConfigView(proxy)) as view, closing(ConfigView(users.open(users.writer))) as other:
        assert view.topic("orders").fence == other.topic("orders").fence == FENCE
        end_fence(proxy, "orders", FENCE)
        end_fence(users.open_proxy(), "orders", FENCE)
        until(
            lambda: view.topic("orders").fence is None and other.topic("orders").fence is None, "the end of the fence"
        )
        assert topic_in(admin.store, "orders").fence is None
    assert admin.store.names("ended_fence") == ["orders"]


def test_what_expects_the_fence_fails_once_a_proxy_has_ended_it_and_the_other_way_round(admin, users):
    fence(admin)
    seen, found = {"ended_fence": admin.store.index("ended_fence")}, admin.store.get("topic", "orders")
    end_fence(users.open_proxy(), "orders", FENCE)
    with pytest.raises(VersionConflict, match="changed meanwhile"):
        admin.store.put_many("topic", [Change("orders", {"home": "engine"}, found.version)], seen)
    proxy, seen = users.open_proxy(), {"topic": admin.store.index("topic")}
    admin.store.put("topic", "orders", {"queues": 3}, found.version)
    with pytest.raises(VersionConflict):
        proxy.put_many("ended_fence", [Change("bills", {"fence": "shop.1"}, 0)], seen)


class Hello:
    broker_group, log_id, epoch, end_position, durable_position, term = "g", "aa", "e", 10, 10, 0


def test_a_proxy_checks_engines_by_their_records_and_records_none(admin, users, caplog):
    EngineRecords(admin.store, SystemClock()).note("g", "aa", 5)
    proxy = users.open_proxy()
    until(lambda: proxy.unavailable_since_ms is None, "it is connected with its users")
    records = EngineRecords(proxy, SystemClock())
    assert records.admits("g", Hello()) is None and admin.store.get("engine", "g").value["position"] == 5
    EngineRecords(admin.store, SystemClock()).note("h", "bb", 5)
    other = Hello()
    other.broker_group = "h"
    assert "another engine" in records.admits("h", other)
    assert "cannot be recorded" not in caplog.text


def test_a_proxy_with_the_writers_password_is_told_and_a_writer_with_the_proxies_is_told(admin, users, caplog):
    careless, blind = users.open(users.writer, is_proxy=True), users.open(users.proxy)
    with closing(ConfigView(careless, process="consumer_proxy@a:4/m")) as view, closing(ConfigView(blind)) as other:
        until(lambda: "may change the whole configuration" in caplog.text, "the proxy to tell it")
        until(lambda: "may only read the configuration" in caplog.text, "the writer to tell it")
        assert "give it the one of the readers" in str(config_health(view))
        assert "give it the one of the writers" in str(config_health(other))
    right = users.open_proxy()
    with closing(ConfigView(right, process="consumer_proxy@a:5/m")) as view:
        until(lambda: right._has_looked_at_nodes, "the look")
        assert right.access_fault == "" and config_health(view) is True


def test_a_writer_that_gets_its_rights_back_is_not_told_any_more(users):
    admin = Administrator(users.open(users.writer), "test")
    proxy = users.open(users.writer, is_proxy=True)
    with closing(ConfigView(proxy)) as view:
        store_users.set_users(admin, readers=["proxies:second"])
        until(lambda: proxy.access_fault, "the fault, at once")
        store_users.set_users(admin, readers=[])
        until(lambda: config_health(view) is True, "its end")


def test_without_a_second_user_nothing_is_told_and_the_nodes_belong_to_the_one(users, caplog):
    caplog.set_level(logging.WARNING)
    proxy = users.open(users.writer, is_proxy=True)
    with pytest.raises(StoreUnavailable, match="proxies do not make it"):
        proxy.report_applied("producer_proxy@a:2/m", {"topic": 0})
    admin = Administrator(users.open(users.writer), "test")
    topics.create(admin, ["orders"], TopicSettings())
    with closing(ConfigView(proxy, process="producer_proxy@a:2/m")) as view:
        until(lambda: proxy._has_looked_at_nodes, "the look")
        assert config_health(view) is True and proxy.access_fault == "" and caplog.text == ""
        proxy.put("topic", "own", {}, 0)
        assert proxy.claim("buffer/slot/0", by_proxy=True)
    assert upkeep.verify(admin.store) == []
    assert admin.store._client.exists(f"{users.chroot}/access") is None
    with pytest.raises(InvalidEntry, match="one user for all processes"):
        admin.store.users()


def test_nodes_of_before_and_of_other_users_are_found_and_mended(admin, users):
    client = admin.store._client
    client.set_acls(f"{users.chroot}/topic/index", [*client.get_acls(f"{users.chroot}/topic/index")[0][:1]])
    client.set_acls(f"{users.chroot}/applied", [*client.get_acls(users.chroot)[0]])
    client.create(f"{users.chroot}/topic/old", b"", acl=client.get_acls(f"{users.chroot}/applied")[0][:1])
    found = {each.subject for each in upkeep.verify(admin.store)}
    assert found == {f"{users.chroot}/{name}" for name in ("applied", "topic/old", "topic/index")}
    assert {each.subject for each in upkeep.repair(admin)} == found
    assert upkeep.verify(admin.store) == []


def test_the_password_of_the_writers_turns_without_a_restart(admin, users):
    running, controller = users.open(users.writer), users.coordination(users.writer)
    running.report_applied("kafka_bridge@a:3/m", {"topic": 1})
    both = ["penstock:first", "penstock:new"]
    assert [each[:2] for each in store_users.set_users(admin, writers=both)] == [
        ("penstock", "writes"), ("penstock", "writes"), ("proxies", "reads"),
    ]  # fmt: skip
    with pytest.raises(InvalidEntry, match="is not among them"):
        store_users.set_users(admin, writers=["penstock:new"])
    users.file("writer", "penstock:new")
    last = Administrator(users.open(users.writer), "test")
    store_users.set_users(last, writers=["penstock:new"])
    running.put("topic", "after", {}, 0)
    running.report_applied("kafka_bridge@a:3/m", {"topic": 2})
    found = controller.record("g")
    controller.write("g", found.record, found.version)
    assert upkeep.verify(last.store) == []
    users.file("before", "penstock:first")
    late = users.open(replace(users.writer, auth_file=str(users._folder / "before")))
    with pytest.raises(AccessDenied):
        late.get("topic", "orders")


def test_the_password_of_the_readers_turns_without_a_restart(admin, users):
    running = users.open_proxy()
    running.report_applied("producer_proxy@a:2/m", {"topic": 1})
    store_users.set_users(admin, readers=["proxies:second", "proxies:new"])
    users.file("proxy", "proxies:new")
    store_users.set_users(admin, readers=["proxies:new"])
    assert running.get("topic", "orders") is not None
    running.report_applied("producer_proxy@a:2/m", {"topic": 2})
    again = users.open_proxy()
    again.report_applied("producer_proxy@a:2/m", {"topic": 3})
    assert {each.version["topic"] for each in admin.store.members().values()} == {1, 3}
    users.file("proxy", "proxies:second")
    with pytest.raises(AccessDenied):
        users.open_proxy().get("topic", "orders")
    assert upkeep.verify(admin.store) == []


def test_a_node_of_an_older_user_is_named_and_mended_with_its_password(admin, users, server):
    older = KazooClient(server.address, auth_data=[("digest", "penstock:lost"), ("digest", "penstock:first")])
    older.start()
    older.create(f"{users.chroot}/topic/300", b"", acl=[make_digest_acl("penstock", "lost", all=True)])
    older.stop()
    older.close()
    kind, node = upkeep.verify(admin.store)
    assert kind.subject == "topic" and "check auth_file" in kind.problem
    assert node.subject == f"{users.chroot}/topic/300" and "belongs to another user" in node.problem
    assert upkeep.repair(admin) == []
    store_users.set_users(admin, writers=["penstock:first", "penstock:lost"])
    assert upkeep.verify(admin.store) == []


def test_the_writers_are_never_readers_and_files_of_the_group_are_taken(admin, users):
    with pytest.raises(InvalidEntry, match="a writer, too"):
        store_users.set_users(admin, readers=["penstock:first"])
    os.chmod(users.writer.auth_file, 0o640)
    assert users.open(users.writer).get("topic", "orders") is not None


@pytest.fixture
def run(users):
    """Run a command with the writer's URL; the exit code has to be `code`."""
    url = f"zookeeper://{users.writer.hosts}{users.chroot}?auth_file={users.writer.auth_file}"

    def run_it(*arguments, code=0):
        result = CliRunner().invoke(cli, [*arguments, "--config", url])
        assert result.exit_code == code, result.output
        return result

    return run_it


def test_commands_name_the_users_show_them_and_find_and_mend_what_differs(users, run):
    run("topic", "create", "orders")
    assert "one user for all processes" in run("config", "access", code=2).output
    proxies = users.file("proxies", "# not a user\n")
    assert "use one line user:password" in run("config", "access", "--readers", proxies, code=2).output
    users.file("proxies", "proxies:second\n")
    rows = json.loads(run("config", "access", "--readers", proxies, "-o", "json").stdout)
    assert [(each["user"], each["rights"]) for each in rows] == [("penstock", "writes"), ("proxies", "reads")]
    assert json.loads(run("config", "access", "-o", "json").stdout) == rows
    (change,) = [each for each in json.loads(run("audit", "-o", "json").stdout) if each["names"] == ["access"]]
    assert change["new"] == {"writes": ["penstock"], "reads": ["proxies"]}
    (found,) = access(f"zookeeper://{users.writer.hosts}{users.chroot}?auth_file={users.writer.auth_file}")
    assert (found.state, found.words) == ("ok", "1 users may change it, 1 may read it and report")
    store = users.open(users.writer)
    assert store.get("topic", "orders")  # it is connected
    store._client.set_acls(f"{users.chroot}/topic", OPEN_ACL_UNSAFE)
    (found,) = access(f"zookeeper://{users.writer.hosts}{users.chroot}?auth_file={users.writer.auth_file}")
    assert found.state == "missing" and f"{users.chroot}/topic" in found.words
    run("config", "verify", code=1)
    run("config", "repair")
    run("config", "verify")
    assert json.loads(run("config", "access", "--no-readers", "-o", "json").stdout) == rows[:1]
    with pytest.raises(AccessDenied):
        users.open_proxy().get("topic", "orders")


def test_a_reader_is_told_by_doctor_and_may_not_repair(admin, users):
    url = f"zookeeper://{users.proxy.hosts}{users.chroot}?auth_file={users.proxy.auth_file}"
    result = CliRunner().invoke(cli, ["config", "access", "--no-readers", "--config", url])
    assert result.exit_code != 0 and "only a writer may" in result.output
    assert topics.show(Administrator(users.open_proxy(), "test"), "orders")[0].name == "orders"
