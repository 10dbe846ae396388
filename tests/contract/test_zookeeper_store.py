"""The contract of configuration stores on a real ZooKeeper that the test starts, and the store's own behaviour there."""

import itertools
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner
from kazoo.exceptions import NotEmptyError

from common.admin import topics, transfer, upkeep
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.clock import SystemClock
from common.config.applying import laggards, wait_applied
from common.config.errors import StoreDamaged, StoreUnavailable, UncertainWrite, VersionConflict
from common.config.store import Change
from common.config.view import ConfigView
from common.config.zookeeper_options import ZooKeeperOptions
from common.config.zookeeper_store import ZooKeeperStore
from penstock.__main__ import cli
from tests.contract.test_config_store import ConfigStoreContract
from tests.services.zookeeper import RECONNECT_S, ZooKeeper, expire
from tests.waiting import until

CHROOTS = itertools.count()


@pytest.fixture
def closed(server, tmp_path):
    """Options of a chroot with an auth_file."""
    secret = tmp_path / "zookeeper.auth"
    secret.touch(0o600)
    secret.write_text("penstock:a secret")
    return ZooKeeperOptions(server.address, f"/contract/{next(CHROOTS)}", auth_file=str(secret))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def reports(store) -> dict[str, int]:
    """The versions that processes report; none while the store is away."""
    try:
        return {process: applied.version for process, applied in store.applied().items()}
    except StoreUnavailable:
        return {}


def written(store, name) -> bool:
    """Whether the topic is there now; False while the store is away."""
    try:
        store.put("topic", name, {"queues": 3}, 0)
    except (StoreUnavailable, UncertainWrite, VersionConflict):
        return name in names(store)
    return True


def names(store) -> list[str]:
    try:
        return store.names("topic")
    except StoreUnavailable:
        return []


def emptied(store) -> bool:
    """Delete all nodes of the store; False when a process has made one meanwhile."""
    try:
        store._client.delete(store._path().rstrip("/"), recursive=True)
    except NotEmptyError:
        return False
    return True


class TestZooKeeperStore(ConfigStoreContract):
    @pytest.fixture
    def open_another(self, opened, server):
        chroot = f"/contract/{next(CHROOTS)}"

        def open_store():
            opened.append(ZooKeeperStore(ZooKeeperOptions(server.address, chroot)))
            return opened[-1]

        return open_store

    @pytest.fixture
    def open_short(self, opened, server):
        """With short sessions."""
        chroot = f"/contract/{next(CHROOTS)}"

        def open_store():
            opened.append(ZooKeeperStore(ZooKeeperOptions(server.address, chroot, session_timeout_s=2.0)))
            return opened[-1]

        return open_store

    def test_a_lost_index_is_reported_at_once_and_made_again(self, server, open_another):
        store = open_another()
        store.put_many("topic", [Change(f"t{number}", {}, 0) for number in range(5)])
        store._client.delete(store._path("topic", "index"))
        began = time.monotonic()
        for call in (lambda: open_another().put("topic", "more", {}, 0), lambda: store.names("topic")):
            with pytest.raises(StoreDamaged, match="penstock config repair"):
                call()
        assert time.monotonic() - began < 5
        assert [each.subject for each in upkeep.verify(store)] == ["topic"]
        upkeep.repair(Administrator(store, "test"))
        assert store.names("topic") == [f"t{number}" for number in range(5)] and upkeep.verify(store) == []

    def test_an_emptied_zookeeper_changes_nothing_until_the_configuration_is_applied_again(
        self, open_another, tmp_path
    ):
        store = open_another()
        store.put_many("topic", [Change(f"t{number}", {"queues": 3}, 0) for number in range(50)])
        backup = transfer.export(store, SystemClock())
        view = ConfigView(open_another(), tmp_path / "snapshot", process="proxy")
        try:
            until(lambda: emptied(store), "the store to be emptied, while its processes report")
            until(lambda: view.damage, "the view to notice")
            assert view.topic("t7").queues == 3 and view.age_s > 0
            admin = Administrator(open_another(), "test")
            topics.create(admin, ["hasty"], TopicSettings())
            saved = transfer.export_snapshot(tmp_path / "snapshot")
            assert saved["kinds"] == backup["kinds"] and saved["identity"] == backup["identity"]
            transfer.apply(admin, saved, transfer.differences(admin.store, saved, deletes=False))
            upkeep.accept(admin, saved["identity"]["cluster"])
            until(lambda: view.damage is None and view.topic("hasty"), "the restored store")
            assert view.topic("t7").queues == 3
            until(lambda: reports(store).get("proxy") == view.version, "its report")
        finally:
            view.close()

    @pytest.mark.parametrize("is_emptied", [True, False], ids=["emptied", "older copy"])
    def test_a_zookeeper_that_has_less_than_its_clients_have_seen_is_followed_again(
        self, open_short, server, tmp_path, caplog, is_emptied
    ):
        """It refuses their sessions, for the last change that they have seen."""
        store = open_short()
        store.put_many("topic", [Change(f"t{number}", {"queues": 3}, 0) for number in range(20)])
        view = ConfigView(open_short(), tmp_path / "snapshot", process="proxy")
        try:
            server.stop()
            shutil.copytree(server.data, tmp_path / "copy")
            server.start()
            for number in range(30):
                until(lambda number=number: written(store, f"u{number}"), "a change", RECONNECT_S)
            until(lambda: view.topic("u29") and reports(store).get("proxy") == view.version, "the last one")
            server.stop()
            shutil.rmtree(server.data)
            if not is_emptied:
                shutil.move(tmp_path / "copy", server.data)
            server.start()
            until(lambda: view.damage, "the view to reach it", RECONNECT_S)
            assert view.topic("u29").queues == 3
            assert "has less than this process has seen" in caplog.text and "an older copy" in caplog.text
            admin = Administrator(open_short(), "test")
            saved = transfer.export_snapshot(tmp_path / "snapshot")
            transfer.apply(admin, saved, transfer.differences(admin.store, saved, deletes=False))
            topics.create(admin, ["after"], TopicSettings())
            until(lambda: view.damage is None and view.topic("after"), "the restored store")
            until(lambda: reports(store).get("proxy") == view.version and "proxy" in store.members(), "its report")
        finally:
            view.close()

    def test_a_session_outlasts_servers_that_close_every_connection(self, open_short, server, caplog):
        """As those without a leader do, for longer than the session's time."""
        store = open_short()
        store.put("topic", "t", {}, 0)
        session, began, closed = store._connection.session, time.monotonic(), 0
        server.stop()
        with socket.create_server(("127.0.0.1", server.port)) as without_leader:
            while time.monotonic() < began + 4.0 or closed < 10:
                without_leader.accept()[0].close()
                closed += 1
        server.start()
        until(lambda: store._connection.is_connected, "the connection", RECONNECT_S)
        assert store._connection.session == session and "has less" not in caplog.text

    def test_two_processes_of_one_name_do_not_share_a_report(self, open_another):
        store, other = open_another(), open_another()
        store.report_applied("proxy", {"topic": 2})
        other.report_applied("proxy", {"topic": 1})
        assert sorted(each.version["topic"] for each in store.applied().values()) == [1, 2]
        assert all(name.startswith("proxy;") for name in store.applied())
        assert len(laggards(store, {"topic": 2})) == 1

    def test_a_process_that_is_cut_off_stays_expected_until_it_is_back_or_forgotten(self, open_another):
        store, other, again = open_another(), open_another(), open_another()
        other.report_applied("proxy", {"topic": 1})
        other._client.stop()  # ends the session; the store object does not leave
        until(lambda: store.applied() == {}, "its session to end")
        (late,) = laggards(store, {"topic": 1})
        assert late.startswith("proxy (no contact; last seen 20")
        again.report_applied("proxy", {"topic": 1})
        assert laggards(store, {"topic": 1}) == [] and laggards(store, {"topic": 2}) == ["proxy"]
        again.leave("proxy")
        assert store.members() == store.applied() == {}
        store.report_applied("gone", {"topic": 1})
        store.forget("gone")
        assert store.members() == store.applied() == {}

    def test_a_report_that_is_garbage_breaks_no_change_and_is_removed_by_a_repair(self, open_another):
        store = open_another()
        store.report_applied("proxy", {"topic": 0})
        for name, data in (("garbage", b"\xff"), ("other", b"[]"), ("odd", b'{"version":{"topic":"x"}}')):
            store._client.create(store._path("applied", name), data)
        assert wait_applied(store, {"topic": 0}, 0.0) == []
        assert set(store.damaged_reports()) == {"garbage", "other", "odd"}
        upkeep.repair(Administrator(store, "test"))
        assert store.damaged_reports() == {} and store.applied().keys() == {"proxy"}

    def test_a_restart_of_zookeeper_loses_no_change(self, server, open_another, tmp_path):
        store = open_another()
        version = store.put("topic", "orders", {"queues": 1}, 0)
        view = ConfigView(open_another(), tmp_path / "snapshot", process="proxy")
        try:
            server.stop()
            until(lambda: view.age_s > 0, "the view to notice the outage")
            assert view.topic("orders").queues == 1
            server.start()
            until(lambda: "proxy" in reports(store), "the store to be reached again", RECONNECT_S)
            store.put("topic", "orders", {"queues": 2}, version)
            until(lambda: view.topic("orders").queues == 2, "the change, which it may have missed", RECONNECT_S)
            until(lambda: reports(store).get("proxy") == view.version, "its report")
            assert view.age_s == 0.0
        finally:
            view.close()

    def test_a_lost_session_is_replaced_and_its_report_made_again(self, open_another):
        store, other = open_another(), open_another()
        view = ConfigView(other, process="proxy")
        try:
            session = other._client.client_id
            expire(other._client)
            store.put("topic", "orders", {}, 0)
            until(lambda: view.topic("orders"), "the change made while the session was gone")
            until(
                lambda: "proxy" in store.applied() and store.applied()["proxy"].version == view.version,
                "the report again",
            )
            assert other._client.client_id != session
        finally:
            view.close()

    def test_a_claim_whose_node_somebody_deletes_is_lost_and_has_one_holder_again(self, open_another):
        one, other = open_another(), open_another()
        assert one.claim("copy/orders") and not other.claim("copy/orders")
        one._client.delete(one._path("claims", "copy%2Forders"))
        until(lambda: not one.holds("copy/orders"), "the end of the claim")
        assert other.claim("copy/orders") and not one.claim("copy/orders")
        other.release("copy/orders")
        assert one.claim("copy/orders") and one.holds("copy/orders") and not other.holds("copy/orders")

    def test_nodes_belong_to_the_authenticated_user_alone(self, server, opened, tmp_path):
        auth = tmp_path / "auth"
        auth.write_text("penstock:s3cret-enough\n")
        auth.chmod(0o600)
        owner = ZooKeeperStore(ZooKeeperOptions(server.address, "/closed", auth_file=str(auth)))
        stranger = ZooKeeperStore(ZooKeeperOptions(server.address, "/closed"))
        opened += [owner, stranger]
        owner.put("topic", "orders", {}, 0)
        owner.report_applied("proxy", {"topic": 1})
        (report,) = owner._client.get_children("/closed/applied")
        names = ("", "cluster", "topic", "topic/index", "applied", f"applied/{report}", "members", "members/proxy")
        for path in (f"/closed/{name}".rstrip("/") for name in names):
            acls, _ = owner._client.get_acls(path)
            assert {acl.id.scheme for acl in acls} == {"digest"}, path
        with pytest.raises(Exception, match="authentication failed"):
            stranger.get("topic", "orders")

    def test_it_co_operates_with_gevent(self, server):
        """In a patched process the other greenlets run while the store waits, and a change is followed."""
        chroot = f"/gevent/{next(CHROOTS)}"
        url = f"zookeeper://{server.address}{chroot}"
        child = subprocess.run([sys.executable, "-c", IN_GEVENT, url], capture_output=True, text=True, timeout=60)
        assert child.returncode == 0, child.stderr


IN_GEVENT = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from common.config import ConfigView, open_store
store, writer = open_store(sys.argv[1]), open_store(sys.argv[1])
turns = []
def spin():
    while True:
        turns.append(1); gevent.sleep(0.001)
spinner = gevent.spawn(spin)
view = ConfigView(store, process="proxy")
writer.put("topic", "orders", {}, 0)
with gevent.Timeout(10):
    while view.topic("orders") is None or writer.applied()["proxy"].version != view.version:
        gevent.sleep(0.01)
assert type(store._client.handler).__name__ == "SequentialGeventHandler"
assert len(turns) > 10
view.close(); store.close(); writer.close()
"""


def test_nodes_that_were_made_without_the_auth_file_are_told_at_each_start_found_and_closed(closed, caplog):
    with closing(ZooKeeperStore(replace(closed, auth_file=""))) as before:
        topics.create(Administrator(before, "test"), ["orders"], TopicSettings())
    with closing(ZooKeeperStore(closed)) as store, closing(ZooKeeperStore(replace(closed, auth_file=""))) as stranger:
        admin = Administrator(store, "test")
        topics.create(admin, ["bills"], TopicSettings())
        store.watch(lambda kind: None)
        until(lambda: "can change" in caplog.text and "penstock config repair" in caplog.text, "the log to tell it", 10)
        open_nodes = [each.subject for each in upkeep.verify(store) if "every client" in each.problem]
        assert closed.chroot in open_nodes and len(open_nodes) > 5
        assert [each.subject for each in upkeep.repair(admin)] == open_nodes
        assert upkeep.verify(store) == [] and topics.show(admin, "orders")[0].name == "orders"
        with pytest.raises(StoreUnavailable, match="authentication failed"):
            topics.show(Administrator(stranger, "test"), "orders")


def test_a_command_that_knows_no_process_says_that_it_has_waited_for_none(server):
    """As right after ZooKeeper was emptied: those that run are known again once each has seen it."""
    chroot = f"/contract/{next(CHROOTS)}"

    def created(name):
        url = f"zookeeper://{server.address}{chroot}"
        result = CliRunner().invoke(cli, ["topic", "create", name, "--config", url])
        assert result.exit_code == 0, result.output
        return result.stderr

    told = created("first")
    assert "none was waited for" in told and "had no entries before" in told and "penstock config apply" in told
    told = created("second")
    assert "none was waited for" in told and "had no entries" not in told
    with closing(ZooKeeperStore(ZooKeeperOptions(server.address, chroot))) as store:
        store.report_applied("proxy", dict.fromkeys(store.version(), 1 << 20))
        assert "waited" not in created("third")


def test_without_an_auth_file_there_is_nothing_to_close(server):
    with closing(ZooKeeperStore(ZooKeeperOptions(server.address, f"/contract/{next(CHROOTS)}"))) as store:
        admin = Administrator(store, "test")
        topics.create(admin, ["orders"], TopicSettings())
        assert upkeep.verify(store) == upkeep.repair(admin) == []
