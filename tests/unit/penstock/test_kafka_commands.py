"""`penstock kafka`: clusters in the configuration, on a file store."""

import json

import pytest

from common.admin import topics
from common.admin.administrator import Administrator
from common.config import open_store
from common.config.definitions import TopicDefinition
from tests.unit.penstock.test_admin_commands import run  # noqa: F401

BOOTSTRAP = "127.0.0.1:9092"


@pytest.fixture
def admin(tmp_path, run):  # noqa: F811
    store = open_store((tmp_path / "config").as_uri())
    yield Administrator(store, "test")
    store.close()


def test_a_cluster_is_added_shown_changed_and_removed(run):  # noqa: F811
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP)
    run("kafka", "add", "other", "--bootstrap", BOOTSTRAP, "--driver", "kafka-python")
    rows = json.loads(run("kafka", "list", "-o", "json").stdout)
    assert [(row["name"], row["bootstrap"], row["driver"]) for row in rows] == [
        ("main", BOOTSTRAP, "auto"),
        ("other", BOOTSTRAP, "kafka-python"),
    ]
    run("kafka", "set", "main", "--bootstrap", "k:1,l:2")
    assert json.loads(run("kafka", "show", "main", "-o", "json").stdout)["bootstrap"] == "k:1,l:2"
    run("kafka", "remove", "other")
    assert 'kafka "other": not found' in run("kafka", "show", "other", code=3).stderr
    assert "not found" in run("kafka", "remove", "other", code=3).stderr


def test_a_second_cluster_of_a_name_is_a_conflict_and_a_faulty_one_wrong_usage(run):  # noqa: F811
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP)
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP, code=4)
    assert "bootstrap: it is missing" in run("kafka", "add", "next", code=2).stderr
    assert "no setting is given" in run("kafka", "set", "main", code=2).stderr


def test_a_cluster_that_is_the_home_of_topics_is_not_removed(run, admin):  # noqa: F811
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP)
    topics.create(admin, ["orders", "pay"], topics.TopicSettings(home="kafka:main"))
    error = run("kafka", "remove", "main", code=4).stderr
    assert error.endswith('kafka "main": it is the home or the secondary of topics orders, pay: delete them first\n')


@pytest.mark.parametrize("kind", ["copy_in", "copy_out"])
def test_a_cluster_that_a_copy_uses_is_not_removed(run, admin, kind):  # noqa: F811
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP)
    admin.store.put(kind, "orders", {"cluster": "main"}, 0)
    assert "topic orders is copied: end its copy first" in run("kafka", "remove", "main", code=4).stderr


def test_a_cluster_that_a_group_reads_is_not_removed(run, admin):  # noqa: F811
    run("kafka", "add", "main", "--bootstrap", BOOTSTRAP)
    entry = {"group": "billing", "topic": "orders", "cluster": "main"}
    admin.store.put("shared_read", "_kafka.billing.orders", entry, 0)
    assert "group billing reads topic orders there, too" in run("kafka", "remove", "main", code=4).stderr


def test_the_home_of_a_topic_cannot_change(run, admin):  # noqa: F811
    topics.create(admin, ["orders"], topics.TopicSettings(home="kafka:main"))
    error = run("topic", "set", "orders", "--home", "engine", code=4).stderr
    assert error.endswith('topic "orders": home cannot change: it is kafka:main\n')
    run("topic", "set", "orders", "--home", "kafka:main", "--grade", "high")


def test_a_topic_with_a_home_in_kafka_is_created_without_an_id_window_unless_one_is_asked_for(admin):
    (made,) = topics.create(admin, ["orders"], topics.TopicSettings(home="kafka:main"))
    assert made.id_window_ms == 0
    with pytest.raises(Exception, match="id_window_ms: 1,000: use 0 on a Kafka home"):
        topics.create(admin, ["pay"], topics.TopicSettings(home="kafka:main", id_window_ms=1_000))


def test_a_copy_is_accepted_only_by_name_of_a_topic_that_is_copied(run, admin):  # noqa: F811
    topics.create(admin, ["local"], topics.TopicSettings())
    assert "nothing is copied into it from Kafka" in run("kafka", "accept", "local", "--reason", "x", code=4).stderr
    assert "not found" in run("kafka", "accept", "none", "--reason", "x", code=3).stderr
    assert "--reason" in run("kafka", "accept", "local", code=2).stderr
    for more in (("--start", "1"), ("--skip", "1"), ("--partition", "0", "--start", "1", "--skip", "1")):
        assert "need --partition" in run("kafka", "accept", "local", "--reason", "x", *more, code=2).stderr


def test_the_beginning_of_a_copy_is_for_topics_with_a_home_in_kafka(run, admin):  # noqa: F811
    assert "--home kafka:NAME" in run("topic", "create", "local", "--copy-from", "latest", code=2).stderr
    with pytest.raises(Exception, match="copy_from"):
        topics.create(admin, ["orders"], topics.TopicSettings(home="kafka:main", copy_from="latest"))
    (made,) = topics.create(admin, ["orders"], topics.TopicSettings(home="kafka:main", copy_from="1,0,7"))
    assert made.first_offsets == (1, 0, 7)
    moved = {**made.to_value(), "home": "engine"}
    assert TopicDefinition.from_value("orders", moved).first_offsets == (1, 0, 7), "also once a plan has moved it"
