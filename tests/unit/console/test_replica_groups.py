"""States of replicas as the map shows them."""

from common.cluster.coordination import Registration
from common.cluster.file_coordination import FileCoordination
from common.cluster.group_record import GroupRecord, GroupState
from console.installation.replica_groups import replica_states
from tests.waiting import until


def test_roles_follow_from_the_record_and_the_registered_brokers(tmp_path):
    coordination = FileCoordination(tmp_path / "replication")
    present = {"a": 1, "b": 2, "c": 3, "d": 4}
    for name, incarnation in present.items():
        coordination.register("main", name, Registration(incarnation, f"127.0.0.1:{incarnation}"))
    members = {"in_sync": {"a": 1, "b": 2, "e": 5}, "joining": {"c": 3}}
    coordination.write(
        "main", GroupRecord(7, GroupState.SYNC_REPLICATION, "a", **members, reason="b is in sync", at_ms=5), 0
    )
    until(lambda: len(coordination.brokers("main")) == len(present), "the brokers are registered")
    (found,) = replica_states(tmp_path.as_uri())
    assert found.roles == {"a": "master", "b": "in sync", "c": "joining", "d": "following", "e": "away"}
    assert (found.state, found.epoch, found.reason, found.controller) == ("sync replication", 7, "b is in sync", "")
    coordination.close()


def test_a_group_without_a_record_waits(tmp_path):
    coordination = FileCoordination(tmp_path / "replication")
    coordination.register("main", "a", Registration(1, "127.0.0.1:1"))
    until(lambda: coordination.brokers("main"), "the broker is registered")
    (found,) = replica_states(tmp_path.as_uri())
    assert (found.state, found.roles) == ("waiting", {"a": "following"})
    coordination.close()
