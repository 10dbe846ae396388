"""Two processes that were started under the name of one broker: real processes."""

from tests.fault.replicated_group import GROUP, ReplicatedGroup
from tests.waiting import until


def test_a_second_process_of_a_name_leaves_the_set_alone_and_takes_the_place_once_the_first_has_ended(tmp_path):
    with ReplicatedGroup(tmp_path / "group", f"file://{tmp_path}/config") as group:
        name, before = group.slave, group.version
        group.start_namesake(name, "second")
        until(lambda: "registered by that name" in group.processes["second"].told(), "the second one waits", 20)
        assert group.version == before, group.logs()
        group.kill(name)
        until(lambda: group.coordination.brokers(GROUP).get(name), "the second one has the name", 20)
        group.wait_in_sync()
        assert group.record.in_sync[name] == group.coordination.brokers(GROUP)[name].incarnation
