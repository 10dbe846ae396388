"""Groups that a plan does not name: by their positions, by their members, and those of which neither is told."""

from common.kafka.records import Partition
from migration.kafka_groups import UnnamedGroups, unnamed_groups

STATES = {
    "named": "Stable", "committed": "Empty", "member": "Stable", "elsewhere": "Stable", "rebalancing": "PreparingRebalance",
    "shared": "Stable", "gone": "Dead", "penstock.copy.shop": "Empty",
}  # fmt: skip


class Cluster:
    """A GroupAdmin of these groups."""

    def groups(self):
        return STATES

    def committed_on(self, groups, topics):
        return {"committed": {Partition("orders", 0): 7}} if "committed" in groups else {}

    def subscribed(self, groups):
        told = {"member": {"orders", "other"}, "elsewhere": {"other"}, "rebalancing": set()}
        return {name: found for name, found in told.items() if name in groups}


def test_a_group_whose_partitions_are_not_told_may_read_any_topic():
    found = unnamed_groups(Cluster(), {"orders": 1}, {"named"})
    assert isinstance(found, UnnamedGroups) and found.unasked == 0
    assert {each.name: each.topics for each in found.groups} == {
        "committed": ("orders",), "member": ("orders",), "rebalancing": (), "shared": (),
    }  # fmt: skip
    sentences = {each.name: each.sentence for each in found.groups}
    assert sentences["shared"] == "group shared has members, and may read any topic in Kafka (is Stable)"
    assert sentences["committed"] == "group committed reads orders in Kafka (has positions, and no members now)"
