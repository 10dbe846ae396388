"""Copies of topics and groups: which settings they have, and where a group is in the sample."""

from migration.rehearsal.kafka_copies import SampledTopic, settings_of


def test_a_copy_has_the_topics_bounds_and_keeps_its_records():
    found = settings_of({"max.message.bytes": "2000", "cleanup.policy": "delete", "retention.ms": "1", "leader.x": "y"})
    assert found == {
        "max.message.bytes": "2000",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


def test_a_group_has_read_as_many_records_of_the_sample_as_of_the_real_partition():
    sampled = SampledTopic(4, (20,), ((10, 12, 15, 19),))
    assert [sampled.position(0, at) for at in (0, 10, 11, 15, 20)] == [0, 0, 1, 2, 4]
