"""The contract of every coordination: in memory, on files, in a real ZooKeeper."""

import itertools
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from common.cluster.coordination import Registration, VersionedRecord
from common.cluster.file_coordination import FileCoordination
from common.cluster.group_record import GroupRecord, GroupState
from common.cluster.history import CHANGES_MAX
from common.cluster.memory_coordination import MemoryCoordination
from common.cluster.opening import open_coordination
from common.config.errors import InvalidEntry, StoreDamaged, StoreUnavailable, UncertainWrite, VersionConflict
from tests.services.zookeeper import RECONNECT_S, ZooKeeper, expire
from tests.waiting import until

RECORD = GroupRecord(1, GroupState.SINGLE_MASTER, "a", {"a": 7}, log_id="1f", reason="the first")
CHROOTS = itertools.count()
CHILD = """
import sys
from common.cluster.coordination import Registration
from common.cluster.opening import open_coordination
from tests.waiting import until
coordination = open_coordination(sys.argv[1])
mine = Registration(int(sys.argv[2]), "child:1")
coordination.register("g", "a", mine)
coordination.stand("child")
until(lambda: coordination.brokers("g").get("a") == mine and coordination.is_controller(), "both", 60.0)
print("ready", flush=True)
sys.stdin.read()
"""


class CoordinationContract:
    """Promises of each implementation. `open_another` opens the coordination of one more process."""

    def test_there_is_no_record_at_first(self, open_another):
        coordination = open_another()
        assert coordination.record("g") is None and coordination.groups() == [] and coordination.brokers("g") == {}

    def test_a_record_comes_back_as_it_was_written_and_its_versions_grow(self, open_another):
        coordination, other = open_another(), open_another()
        assert coordination.write("g", RECORD, 0) == 1
        assert other.record("g") == VersionedRecord(RECORD, 1) and other.groups() == ["g"]
        later = replace(RECORD, epoch=2, reason="the second")
        assert other.write("g", later, 1) == 2
        assert coordination.record("g") == VersionedRecord(later, 2)

    @pytest.mark.parametrize("version", [0, 2, 9])
    def test_a_write_at_another_version_changes_nothing(self, open_another, version):
        coordination = open_another()
        coordination.write("g", RECORD, 0)
        with pytest.raises(VersionConflict):
            coordination.write("g", replace(RECORD, epoch=5), version)
        assert coordination.record("g") == VersionedRecord(RECORD, 1)

    def test_a_write_at_a_version_of_a_record_that_is_missing_is_refused(self, open_another):
        with pytest.raises(VersionConflict):
            open_another().write("g", RECORD, 1)

    def test_of_two_writers_at_one_version_one_wins(self, open_another):
        one, other = open_another(), open_another()
        one.write("g", RECORD, 0)
        one.write("g", replace(RECORD, epoch=2), 1)
        with pytest.raises(VersionConflict):
            other.write("g", replace(RECORD, epoch=3), 1)
        assert other.record("g").record.epoch == 2

    def test_the_latest_changes_of_a_group_are_remembered(self, open_another):
        one, other = open_another(), open_another()
        assert one.history("g") == []
        changes = [VersionedRecord(replace(RECORD, epoch=number), number) for number in range(1, CHANGES_MAX + 3)]
        for number, change in enumerate(changes[:4]):
            (one, other)[number % 2].remember("g", change)
        assert one.history("g") == other.history("g") == changes[:4]
        one.remember("g", changes[2])
        other.remember("h", changes[5])
        assert one.history("g") == changes[:4] and one.record("g") is None
        for change in changes:
            one.remember("g", change)
        assert other.history("g") == changes[-CHANGES_MAX:], "in order, and no more"

    def test_groups_do_not_mix_whatever_their_names(self, open_another):
        coordination = open_another()
        groups = ("g", "g/2", "g.3", "ä %2F")
        for number, group in enumerate(groups):
            coordination.write(group, replace(RECORD, epoch=number + 1), 0)
            coordination.register(group, "a/b", Registration(number, "here"))
        for number, group in enumerate(groups):
            assert coordination.record(group).record.epoch == number + 1
            until(lambda group=group: coordination.brokers(group), "the registration")
            assert coordination.brokers(group) == {"a/b": Registration(number, "here")}
        assert coordination.groups() == sorted(groups)

    def test_a_broker_is_registered_until_it_withdraws(self, open_another):
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1 << 62, "h:1"))
        until(lambda: other.brokers("g") == {"a": Registration(1 << 62, "h:1")}, "the registration")
        one.unregister("g", "b")
        one.unregister("g", "a")
        until(lambda: other.brokers("g") == {}, "its end")

    def test_a_broker_is_registered_until_its_coordination_is_closed(self, open_another):
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1, "h:1"))
        until(lambda: other.brokers("g"), "the registration")
        one.close()
        until(lambda: other.brokers("g") == {}, "its end")

    def test_a_broker_changes_its_registration(self, open_another):
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1, "h:1"))
        one.register("g", "a", Registration(1, "a much longer host name:20000"))
        until(lambda: other.brokers("g") == {"a": Registration(1, "a much longer host name:20000")}, "the change")

    def test_a_name_belongs_to_its_first_process_until_that_ends(self, open_another):
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1, "one:1"))
        until(lambda: other.brokers("g"), "the first")
        heard = []
        other.watch("g", heard.append)
        other.register("g", "a", Registration(2, "other:1"))
        until(lambda: heard, "a look of the second")
        assert other.brokers("g") == {"a": Registration(1, "one:1")}
        one.close()
        until(lambda: other.brokers("g") == {"a": Registration(2, "other:1")}, "the second")

    def test_a_watcher_is_called_at_first_and_after_each_change(self, open_another):
        one, other = open_another(), open_another()
        seen = []
        one.watch("g", lambda group: seen.append((group, one.record(group), sorted(one.brokers(group)))))
        until(lambda: seen == [("g", None, [])], "the first call")
        other.write("g", RECORD, 0)
        until(lambda: seen[-1] == ("g", VersionedRecord(RECORD, 1), []), "the record")
        other.register("g", "a", Registration(1, "h:1"))
        until(lambda: seen[-1][2] == ["a"], "the broker")
        other.write("g", replace(RECORD, epoch=2), 1)
        until(lambda: seen[-1][1].version == 2, "the second record")
        other.unregister("g", "a")
        until(lambda: seen[-1][2] == [], "its end")

    def test_a_watcher_is_not_called_for_other_groups(self, open_another):
        one, other = open_another(), open_another()
        seen, others = [], []
        one.watch("g", seen.append)
        until(lambda: seen == ["g"], "the first call")
        one.watch("h", others.append)
        until(lambda: others == ["h"], "the first call for the other group")
        other.write("h", RECORD, 0)
        until(lambda: len(others) == 2, "the other group's change")
        assert seen == ["g"]

    def test_new_groups_are_seen(self, open_another):
        one, other = open_another(), open_another()
        seen = []
        one.watch_groups(lambda: seen.append(one.groups()))
        until(lambda: seen == [[]], "the first call")
        other.write("g", RECORD, 0)
        until(lambda: seen[-1] == ["g"], "the group")

    def test_the_first_candidate_is_elected_and_the_next_after_its_end(self, open_another):
        one, other, watcher = open_another(), open_another(), open_another()
        seen = []
        watcher.watch_groups(lambda: seen.append(watcher.controller()))
        until(lambda: seen == [None], "the first call")
        one.stand("one.1")
        until(one.is_controller, "the first to be elected")
        other.stand("other/2")
        until(lambda: seen[-1] == "one.1" and other.controller() == "one.1", "the second to know the first")
        assert not other.is_controller() and not watcher.is_controller()
        one.close()
        until(other.is_controller, "the second to be elected")
        until(lambda: seen[-1] == "other/2", "the news")

    def test_contact_is_recent(self, open_another):
        coordination = open_another()
        coordination.watch("g", lambda group: None)
        until(lambda: coordination.contact_age_s() < 1.0, "contact")


class RankContract:
    """Promises of those whose candidates may be on several machines."""

    def test_of_the_candidates_one_of_the_lowest_rank_is_elected_and_of_equal_ones_the_first(self, open_another):
        one, two, three = (open_another() for _ in range(3))
        for number, each in enumerate((one, two, three)):
            each.stand(f"c{number}")
            until(lambda: one.is_controller() and one.controller() == "c0", "the first stays elected")
        one.rank(2)
        until(lambda: two.is_controller() and not one.is_controller(), "the second of equal ones")
        two.rank(1)
        until(lambda: three.is_controller() and not two.is_controller(), "the one of the lowest rank")
        three.close()
        until(lambda: two.is_controller() and one.controller() == "c1", "the next by rank")
        one.rank(0)
        until(lambda: one.is_controller() and not two.is_controller(), "the first, whose rank is the lowest now")


@pytest.fixture
def opened():
    """Coordinations to close behind the test, last first."""
    coordinations: list = []
    yield coordinations
    for coordination in reversed(coordinations):
        coordination.close()


class TestMemoryCoordination(RankContract, CoordinationContract):
    @pytest.fixture
    def open_another(self, opened):
        def open_it():
            opened.append(opened[0].peer() if opened else MemoryCoordination())
            return opened[-1]

        return open_it

    def test_an_outage_ends_what_is_known_without_a_request(self, open_another):
        one, other = open_another(), open_another()
        one.stand("one")
        one.register("g", "a", Registration(1, "h:1"))
        one.set_available(False)
        assert not one.is_controller() and one.contact_age_s() == float("inf")
        with pytest.raises(StoreUnavailable):
            one.record("g")
        assert other.brokers("g")
        one.end_session()
        assert not other.brokers("g") and other.controller() is None
        one.set_available(True)
        assert other.brokers("g") and one.is_controller()


class RealProcesses:
    """Promises that only processes or threads show. `url` names a place."""

    @pytest.fixture
    def open_another(self, opened, url):
        def open_it():
            opened.append(open_coordination(url))
            return opened[-1]

        return open_it

    @pytest.fixture
    def child(self, url):
        """Another process, which is registered and elected."""
        made = subprocess.Popen([sys.executable, "-c", CHILD, url, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert made.stdout.readline() == b"ready\n"
            yield made
        finally:
            made.kill()
            made.communicate()

    def test_what_a_killed_process_held_is_free(self, child, open_another):
        here = open_another()
        here.stand("here")
        until(lambda: here.controller() == "child", "the child to be seen")
        assert here.brokers("g") == {"a": Registration(1, "child:1")} and not here.is_controller()
        child.send_signal(signal.SIGKILL)
        here.register("g", "a", Registration(2, "here:1"))
        until(lambda: here.brokers("g") == {"a": Registration(2, "here:1")}, "the name to be free", 20.0)
        until(here.is_controller, "the election", 20.0)

    def test_a_candidate_that_stands_still_gives_way_to_the_next_one(self, child, open_another):
        here = open_another()
        here.stand("here")
        until(lambda: here.controller() == "child", "the child to be seen")
        child.send_signal(signal.SIGSTOP)
        until(lambda: here.is_controller() and here.controller() == "here", "the election", 20.0)

    def test_a_watcher_that_fails_keeps_no_other_from_being_called(self, open_another):
        one, seen = open_another(), []
        one.watch("g", lambda group: 1 / 0)
        one.watch("g", seen.append)
        one.write("g", RECORD, 0)
        until(lambda: seen, "the second watcher")


class TestFileCoordination(RealProcesses, CoordinationContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"file://{tmp_path}"

    @pytest.mark.parametrize("data", [b"", b"1", b"x\n{}", b"1\n{}", b'1\n{"epoch": 0}', b"\xff"])
    def test_a_damaged_record_is_named(self, open_another, tmp_path, data):
        coordination = open_another()
        coordination.write("g", RECORD, 0)
        (tmp_path / "replication/groups/g/record").write_bytes(data)
        with pytest.raises(StoreDamaged, match="groups/g/record: damaged"):
            coordination.record("g")
        with pytest.raises(StoreDamaged):
            coordination.write("g", RECORD, 1)

    def test_a_directory_that_is_gone_is_no_empty_one(self, open_another, tmp_path):
        coordination, heard = open_another(), []
        coordination.watch("g", heard.append)
        until(lambda: heard, "the first call")
        (tmp_path / "replication").rename(tmp_path / "away")
        for ask in (coordination.groups, lambda: coordination.record("g"), lambda: coordination.brokers("g")):
            with pytest.raises(StoreUnavailable):
                ask()
        assert coordination.contact_age_s() == float("inf")
        (tmp_path / "away").rename(tmp_path / "replication")
        assert coordination.groups() == [] and coordination.contact_age_s() == 0.0

    def test_a_full_disk_refuses_a_write_and_keeps_the_record(self, open_another, monkeypatch):
        coordination = open_another()
        coordination.write("g", RECORD, 0)

        def refuse(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("common.config.files.write_synced", refuse)
        with pytest.raises(StoreUnavailable, match="disk full"):
            coordination.write("g", replace(RECORD, epoch=2), 1)
        assert coordination.record("g") == VersionedRecord(RECORD, 1)

    def test_a_record_that_was_replaced_but_not_synced_is_uncertain(self, open_another, monkeypatch):
        coordination = open_another()
        coordination.write("g", RECORD, 0)

        def refuse(directory: object) -> None:
            raise OSError(5, "Input/output error")

        later = replace(RECORD, epoch=2)
        monkeypatch.setattr(coordination, "_make", lambda group: None)
        monkeypatch.setattr("common.config.files.sync_directory", refuse)
        with pytest.raises(UncertainWrite, match="not synced"):
            coordination.write("g", later, 1)
        assert coordination.record("g") == VersionedRecord(later, 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


class TestZooKeeperCoordination(RealProcesses, RankContract, CoordinationContract):
    @pytest.fixture
    def url(self, server):
        return f"zookeeper://{server.address}/coordination/{next(CHROOTS)}?session_timeout_s=6"  # a loaded machine may stall

    def test_a_lost_session_registers_and_stands_again(self, open_another):
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1, "h:1"))
        one.stand("one")
        until(one.is_controller, "the election")
        until(lambda: other.brokers("g"), "the registration")
        session = one._connection.session
        expire(one._client)
        until(lambda: one._connection.session != session and one.is_controller(), "another session", 20.0)
        until(lambda: other.brokers("g") == {"a": Registration(1, "h:1")}, "the registration again", 20.0)

    def test_nodes_that_somebody_deletes_are_made_again(self, open_another):
        """The place of a candidate and the registration of a broker, while their session goes on."""
        one, other = open_another(), open_another()
        one.register("g", "a", Registration(1, "h:1"))
        one.stand("one")
        until(lambda: one.is_controller() and other.brokers("g"), "the election and the registration")
        other.stand("other")
        until(lambda: len(one._children("controllers")) == 2, "the second candidate")
        one._client.delete(one._path("groups", "g", "brokers", "a"))
        (place,) = (name for name in one._children("controllers") if one._token in name)
        one._client.delete(one._path("controllers", place))
        until(other.is_controller, "the next candidate")
        until(lambda: other.brokers("g") == {"a": Registration(1, "h:1")}, "the registration again")
        other.close()
        until(one.is_controller, "the first candidate, in another place")

    def test_a_node_that_is_no_place_of_a_candidate_hinders_no_election(self, open_another):
        one = open_another()
        one._connection.create(one._path("controllers", "by-hand"), b"")
        one.stand("one")
        until(lambda: one.is_controller() and one.controller() == "one", "the election")

    def test_while_zookeeper_is_stopped_there_is_no_contact_and_afterwards_everything_is_as_before(
        self, open_another, server
    ):
        one, seen = open_another(), []
        one.register("g", "a", Registration(1, "h:1"))
        one.stand("one")
        one.write("g", RECORD, 0)
        one.watch("g", lambda group: seen.append(sorted(one.brokers(group))))
        until(one.is_controller, "the election")
        until(lambda: seen and seen[-1] == ["a"], "the registration")
        server.stop()
        until(lambda: one.contact_age_s() == float("inf"), "the loss of contact")
        assert not one.is_controller() and one.controller() is None
        seen.clear()
        server.start()
        until(lambda: seen and seen[-1] == ["a"], "the news after the outage", RECONNECT_S)
        until(one.is_controller, "the election after the outage", RECONNECT_S)
        assert one.record("g") == VersionedRecord(RECORD, 1) and one.contact_age_s() < 2.0

    @pytest.mark.parametrize("is_emptied", [True, False], ids=["emptied", "older copy"])
    def test_at_a_zookeeper_that_has_less_than_was_seen_it_registers_and_stands_again(
        self, opened, url, server, tmp_path, is_emptied
    ):
        opened.append(open_coordination(url.replace("timeout_s=6", "timeout_s=2")))
        (one,), seen = opened, []
        one.write("g", RECORD, 0)
        server.stop()
        shutil.copytree(server.data, tmp_path / "copy")
        server.start()
        until(one._has_contact, "the contact", RECONNECT_S)
        one.register("g", "a", Registration(1, "h:1"))
        one.stand("one")
        one.watch("g", lambda group: seen.append(one.record(group)))
        for version in range(1, 31):
            one.write("g", replace(RECORD, epoch=version + 1), version)
        until(lambda: one.is_controller() and seen and seen[-1].version == 31, "the last change")
        server.stop()
        shutil.rmtree(server.data)
        if not is_emptied:
            shutil.move(tmp_path / "copy", server.data)
        server.start()
        older = None if is_emptied else VersionedRecord(RECORD, 1)
        until(lambda: one.is_controller() and seen[-1] == older, "the election", RECONNECT_S)
        until(lambda: one.brokers("g") == {"a": Registration(1, "h:1")}, "the registration again")

    def test_a_place_that_was_taken_twice_counts_as_one(self, open_another):
        """A request to create a place is repeated when the connection is lost before its answer."""
        one, other = open_another(), open_another()
        one.stand("one")
        until(one.is_controller, "the election")
        one._client.create(one._path("controllers", f"one.{one._token}."), b"", ephemeral=True, sequence=True)
        other.stand("other")
        until(lambda: other.controller() == "one", "the second candidate")
        until(one.is_controller, "the first to stay elected")

    def test_beside_a_candidate_of_an_earlier_version_which_knows_no_ranks_the_first_is_elected(self, open_another):
        one, two = open_another(), open_another()
        one.stand("one")
        until(one.is_controller, "the election")
        older = one._client.create(one._path("controllers", "older.0123."), b"", sequence=True)
        one.rank(3)
        two.stand("two")
        until(lambda: two.controller() == "one" and one.is_controller(), "all go by the number")
        one._client.delete(older)
        until(lambda: two.is_controller() and not one.is_controller(), "all go by the rank")

    def test_answers_to_reads_do_not_prove_the_contact(self, open_another, monkeypatch):
        """A server that is cut off from the others answers them for a while."""
        one = open_another()
        one.watch("g", lambda group: None)
        until(lambda: one.contact_age_s() < 1.0, "contact")
        monkeypatch.setattr(one, "_prove_contact", lambda: None)
        until(lambda: one.groups() == [] and one.contact_age_s() > 1.5, "the end of the contact")

    def test_a_session_that_is_longer_than_asked_for_is_told(self, open_another, server, opened):
        assert open_another().groups() == [] and opened[-1].session_fault == ""
        opened.append(open_coordination(f"zookeeper://{server.address}/short?session_timeout_s=0.3"))
        assert opened[-1].groups() == []
        assert "sessions last 1 s, not 0.3 s" in opened[-1].session_fault

    def test_a_record_that_is_garbage_is_named(self, open_another):
        coordination = open_another()
        coordination.write("g", RECORD, 0)
        coordination._client.set(coordination._path("groups", "g", "record"), b"garbage")
        with pytest.raises(StoreDamaged, match="groups/g/record: damaged"):
            coordination.record("g")


@pytest.mark.parametrize("url", ["", "file://host/x", "redis://h:1", "zookeeper:///x"])
def test_a_url_of_no_coordination_is_refused(url):
    with pytest.raises(InvalidEntry, match="coordination URL"):
        open_coordination(url)


def test_files_are_for_their_user_alone(tmp_path):
    coordination = FileCoordination(tmp_path / "made")
    coordination.register("g", "a", Registration(1, "h:1"))
    coordination.write("g", RECORD, 0)
    until(lambda: coordination.brokers("g"), "the registration")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "made").rglob("*")}
    coordination.close()
    assert modes == {0o600, 0o700}
