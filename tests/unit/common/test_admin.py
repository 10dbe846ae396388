"""Administrative verbs on a store in memory."""

import itertools
from dataclasses import replace

import pytest

from common.admin import applications, audit, bulk, families, groups, members, topics
from common.admin.administrator import Administrator
from common.admin.applications import Grants
from common.admin.errors import AlreadyExist, StateConflict
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from common.clock import FakeClock
from common.config.applying import laggards, wait_applied
from common.config.definitions import Grant
from common.config.errors import EntryNotFound, InvalidDefinition, VersionConflict
from common.config.memory_store import MemoryConfigStore
from common.config.root_keys import RootKeys
from common.config.view import ConfigView


@pytest.fixture
def admin():
    return Administrator(MemoryConfigStore(), "test:alice", FakeClock())


def test_topics_are_created_listed_shown_set_and_deleted(admin):
    topics.create(admin, ["b", "a"], TopicSettings(queues=4))
    assert [topic.name for topic in topics.list_topics(admin)] == ["a", "b"]
    assert topics.set_topic(admin, "a", TopicSettings(queues=16, durability="memory")).queues == 16
    topic, version = topics.show(admin, "a")
    assert (topic.queues, topic.durability, version) == (16, "memory", 2)
    topics.delete(admin, "a")
    with pytest.raises(EntryNotFound):
        topics.show(admin, "a")


def test_a_list_leaves_out_what_cannot_be_read_names_it_and_fills_its_page(admin):
    topics.create(admin, [f"t{number}" for number in range(6)], TopicSettings())
    for number in (1, 2, 5):
        admin.store.put("topic", f"t{number}", {"queues": "many"}, 1)
    told = []
    found = [topic.name for topic in topics.list_topics(admin, limit=3, on_unreadable=told.append)]
    assert found == ["t0", "t3", "t4"] and [error.subject for error in told] == ['topic "t1"', 'topic "t2"']
    assert topics.list_topics(admin, after="t4", on_unreadable=told.append) == []
    with pytest.raises(InvalidDefinition, match='topic "t1"'):
        topics.list_topics(admin)


def test_a_topic_that_cannot_be_read_is_deleted_and_one_made_again_is_later(admin):
    admin.store.put("topic", "odd", {"queues": "many"}, 0)
    topics.delete(admin, "odd")
    (again,) = topics.create(admin, ["odd"], TopicSettings())
    assert again.made_ms > admin.clock.now_ms()


def test_many_topics_with_wrong_names_are_refused_together_and_none_is_created(admin):
    with pytest.raises(InvalidDefinition) as caught:
        topics.create(admin, ["good", "bad one", "worse/one"], TopicSettings())
    assert "bad one" in str(caught.value)
    assert "worse/one" in str(caught.value)
    assert topics.list_topics(admin) == []


def test_creating_an_existing_topic_conflicts_and_creates_no_other(admin):
    topics.create(admin, ["a"], TopicSettings())
    with pytest.raises(VersionConflict):
        topics.create(admin, ["new", "a"], TopicSettings())
    assert [topic.name for topic in topics.list_topics(admin)] == ["a"]


def test_a_conflict_names_the_first_few_and_skipping_creates_the_others(admin):
    topics.create(admin, [f"t{i}" for i in range(10)], TopicSettings(queues=2))
    with pytest.raises(
        AlreadyExist, match='topic "t0", "t1", "t2", "t3", "t4", …: 10 of 20 exist already: nothing was created'
    ):
        topics.create(admin, [f"t{i}" for i in range(20)], TopicSettings())
    made = topics.create(admin, [f"t{i}" for i in range(20)], TopicSettings(), skip_existing=True)
    assert [topic.name for topic in made] == [f"t{i}" for i in range(10, 20)]
    assert topics.show(admin, "t0")[0].queues == 2
    assert topics.create(admin, ["t0"], TopicSettings(), skip_existing=True) == []


def test_a_files_lines_are_names_with_columns_blanks_and_comments():
    lines = ["# made by hand\n", "\n", "a\n", " b , 3 \n", "c,,memory\r\n", "d,4,fsync"]
    assert {name: each.given() for name, each in bulk.parse(lines).items()} == {
        "a": {},
        "b": {"queues": 3},
        "c": {"durability": "memory"},
        "d": {"queues": 4, "durability": "fsync"},
    }


@pytest.mark.parametrize(
    "line, rule",
    [
        ("bad name", '"bad name": invalid name: use 1–249'),
        ("m.*", '"m.*": invalid name'),
        (",8", '"": invalid name'),
        ("t,0", '"t": queues: 0 is out of range: use 1 to 10,000'),
        ("t,10001", "queues: 10,001 is out of range"),
        ("t,-1", 'queues: "-1" is not a whole number'),
        ("t,²", 'queues: "²" is not a whole number'),
        ("t,99999999999999999999", 'queues: "99999999999999999999" is not'),
        ("t,8,disk", 'durability: "disk" is not one of the choices'),
        ("t,8,memory,x", "4 columns are too many: use name, name,queues or"),
        ("good", '"good" is also in line 1'),
    ],
)
def test_a_wrong_line_is_named_with_its_number_and_rule(line, rule):
    with pytest.raises(InvalidDefinition) as caught:
        bulk.parse(["good", "#", line])
    assert "line 3: " in str(caught.value)
    assert rule in str(caught.value)


def test_of_many_wrong_lines_the_first_are_shown_and_all_are_counted():
    with pytest.raises(InvalidDefinition) as caught:
        bulk.parse("/" * (i + 1) for i in range(5_000))
    assert len(caught.value.faults) == bulk.FAULTS_MAX + 1
    assert str(caught.value).endswith("and 4,990 more")


def test_what_a_line_says_goes_before_the_settings_for_all(admin):
    topics.create(admin, bulk.parse(["a", "b,3"]), TopicSettings(queues=5, durability="memory"))
    assert [(t.queues, t.durability) for t in topics.list_topics(admin)] == [(5, "memory"), (3, "memory")]


def test_families_are_created_listed_shown_set_and_deleted(admin):
    families.create(admin, ["b.*", "a.*"], TopicSettings(queues=4))
    assert [family.name for family in families.list_families(admin)] == ["a.*", "b.*"]
    assert families.set_family(admin, "a.*", TopicSettings(queues=16)).queues == 16
    with pytest.raises(StateConflict, match=r'family "a\.\*": queues cannot shrink: it is 16, use 16 or more'):
        families.set_family(admin, "a.*", TopicSettings(queues=4))
    assert families.delete(admin, "a.*", lambda prefix: []) == 0
    with pytest.raises(EntryNotFound):
        families.show(admin, "a.*")
    with pytest.raises(AlreadyExist, match=r'family "b\.\*": exists already'):
        families.create(admin, ["b.*"], TopicSettings())


def test_a_family_with_topics_is_deleted_by_force_only(admin):
    families.create(admin, ["m.*", "m.x.*"], TopicSettings())
    topics.create(admin, ["m.own"], TopicSettings())
    existing = ["m.own", "m.x.1"]
    assert families.delete(admin, "m.*", lambda prefix: existing) == 0, "these are defined otherwise"
    families.create(admin, ["m.*"], TopicSettings())
    with pytest.raises(StateConflict, match="1 topic would lose this definition: use --force"):
        families.delete(admin, "m.*", lambda prefix: [*existing, "m.a"])
    assert families.delete(admin, "m.*", lambda prefix: [*existing, "m.a"], force=True) == 1


def test_counting_a_familys_topics_ends_at_a_bound(admin):
    families.create(admin, ["m.*"], TopicSettings())
    endless = (f"m.{i}" for i in itertools.count())
    with pytest.raises(StateConflict, match="10,000 topics or more"):
        families.delete(admin, "m.*", lambda prefix: endless)


def test_there_are_only_so_many_families(admin, monkeypatch):
    monkeypatch.setattr(families, "FAMILIES_MAX", 2)
    families.create(admin, ["a*", "b*"], TopicSettings())
    with pytest.raises(StateConflict, match="at most 2"):
        families.create(admin, ["c*"], TopicSettings())


def test_queues_do_not_shrink(admin):
    topics.create(admin, ["a"], TopicSettings(queues=8))
    with pytest.raises(StateConflict, match="it is 8"):
        topics.set_topic(admin, "a", TopicSettings(queues=4))


def test_setting_a_topic_keeps_the_fields_of_another_version(admin):
    admin.store.put("topic", "a", {"colour": "gold"}, 0)
    topics.set_topic(admin, "a", TopicSettings(queues=9))
    assert admin.store.get("topic", "a").value["colour"] == "gold"


def test_groups_are_created_set_and_deleted(admin):
    groups.create(admin, "readers", GroupSettings(topics=("a",)))
    assert groups.set_group(admin, "readers", GroupSettings(invisible_ms=5_000)).invisible_ms == 5_000
    assert groups.show(admin, "readers")[0].topics == ("a",)
    groups.delete(admin, "readers")
    assert groups.list_groups(admin) == []


def test_rotation_overlaps_two_keys_and_revoking_ends_the_old_one(admin):
    first = applications.create(admin, "shop")
    second = applications.rotate(admin, "shop")
    assert {key.key_id for key in applications.show(admin, "shop")[0].keys} == {first.key_id, second.key_id}
    with pytest.raises(StateConflict, match="revoke one first"):
        applications.rotate(admin, "shop")
    assert [key.key_id for key in applications.revoke(admin, "shop", first.key_id).keys] == [second.key_id]
    with pytest.raises(EntryNotFound, match=r"key .* not found"):
        applications.revoke(admin, "shop", first.key_id)


def test_grants_are_added_once_and_taken_back(admin):
    applications.create(admin, "shop")
    for _ in range(2):
        app = applications.grant(admin, "shop", Grants(send=("orders*",), pull=("orders*", "readers")))
    assert len(app.grants) == 5
    assert (app.patterns("send"), app.patterns("topic")) == (("orders*",), ("orders*", "readers"))
    assert len(applications.ungrant(admin, "shop", Grants(pull=("readers",))).grants) == 3
    with pytest.raises(EntryNotFound, match='grant to pull from "readers" not found'):
        applications.ungrant(admin, "shop", Grants(pull=("readers",)))


def put_earlier_application(admin, **fields):
    """Write an application as earlier versions did."""
    keys = [{"key_id": "k1", "secret": "s" * 43, "created_at_ms": 1}]
    admin.store.put("application", "shop", {"keys": keys, "grants": [["pull", "orders"]], **fields}, 0)


def test_a_process_of_an_earlier_version_grants_no_more_than_a_new_definition_says(admin):
    applications.create(admin, "shop", Grants(pull=("orders",), pull_topics=("a",), dead_letters=("b",)))
    applications.grant(admin, "shop", Grants(pull=("more",), pull_groups=("c",), send=("d",)))
    stored = admin.store.get("application", "shop").value
    assert stored["grants"] == [["send", "d"]], "the one field that earlier versions read"


def test_a_definition_of_an_earlier_version_is_kept_for_processes_of_that_version(admin):
    put_earlier_application(admin)
    applications.grant(admin, "shop", Grants(pull=("orders",), dead_letters=("orders",)))
    stored = admin.store.get("application", "shop").value
    assert (stored["grants"], stored["pull_grants"]) == ([["pull", "orders"]], [["dead_letters", "orders"]])


def test_a_part_of_a_grant_of_an_earlier_version_can_be_taken_back(admin):
    put_earlier_application(admin)
    left = applications.ungrant(admin, "shop", Grants(pull_topics=("orders",)))
    assert left.grants == (Grant("group", "orders"),)
    assert admin.store.get("application", "shop").value["grants"] == []


def test_a_wrong_pattern_is_refused(admin):
    applications.create(admin, "shop")
    with pytest.raises(InvalidDefinition, match="pattern"):
        applications.grant(admin, "shop", Grants(send=("a*b",)))


def test_each_change_leaves_an_audit_record_without_secrets(admin):
    key = applications.create(admin, "shop")
    admin.clock.advance(1)
    applications.grant(admin, "shop", Grants(send=("*",)))
    admin.clock.advance(1)
    topics.create(admin, [f"t{i}" for i in range(100)], TopicSettings())
    newest, grant, create = audit.latest(admin.store)
    assert (create["who"], create["action"], create["names"]) == ("test:alice", "create", ["shop"])
    assert (grant["old"]["grants"], grant["new"]["grants"]) == ([], [["send", "*"]])
    assert (newest["count"], len(newest["names"])) == (100, 50)
    assert key.secret not in str([newest, grant, create])


def test_a_change_that_changes_nothing_leaves_no_record(admin):
    topics.create(admin, ["a"], TopicSettings(queues=8))
    topics.set_topic(admin, "a", TopicSettings(queues=8))
    assert len(audit.latest(admin.store)) == 1


def test_a_race_between_two_administrators_is_redone_on_the_newer_state(admin, monkeypatch):
    topics.create(admin, ["a"], TopicSettings())
    put, raced = admin.store.put, []

    def put_after_a_rival(kind, name, value, version):
        if kind == "topic" and not raced:
            raced.append(put(kind, name, {"durability": "memory"}, version))
        return put(kind, name, value, version)

    monkeypatch.setattr(admin.store, "put", put_after_a_rival)
    topic = topics.set_topic(admin, "a", TopicSettings(queues=16))
    assert (topic.queues, topic.durability) == (16, "memory")


def test_the_operators_key_is_kept_while_it_works_and_replaced_when_not(admin):
    key = applications.ensure_operator(admin, "penstock-cli", None)
    assert applications.ensure_operator(admin, "penstock-cli", key) == key
    applications.revoke(admin, "penstock-cli", key.key_id)
    assert applications.ensure_operator(admin, "penstock-cli", key) != key


def test_a_process_lags_until_it_has_reported_the_version_of_every_kind(admin):
    store = admin.store
    store.report_applied("proxy", {"topic": 1, "group": 9})
    assert laggards(store, {"topic": 2, "group": 1}) == ["proxy"]
    assert wait_applied(store, {"topic": 2}, 0.01) == ["proxy"]
    store.report_applied("proxy", {"topic": 2, "group": 9})
    assert wait_applied(store, {"topic": 2, "group": 1}, 0.01) == []


def test_an_expected_process_without_contact_is_named_until_it_is_forgotten():
    store = MemoryConfigStore()
    proxy = store.peer()
    proxy.report_applied("proxy", {"topic": 1})
    assert laggards(store, {"topic": 1}) == []
    proxy.close()
    (late,) = wait_applied(store, {"topic": 1}, 0.01)
    assert late.startswith("proxy (no contact; last seen ")
    admin = Administrator(store, "test")
    assert [(row["name"], row["state"]) for row in members.states(admin)] == [("proxy", "no contact")]
    members.forget(admin, "proxy")
    assert laggards(store, {"topic": 1}) == [] == members.states(admin)
    with pytest.raises(EntryNotFound):
        members.forget(admin, "proxy")


def test_a_view_that_is_closed_in_order_is_expected_no_more():
    store = MemoryConfigStore()
    view = ConfigView(store, process="proxy")
    assert store.members().keys() == {"proxy"}
    view.close()
    assert store.members() == store.applied() == {}


@pytest.fixture
def deriving(admin):
    """The same store, by an administrator with a root key."""
    return replace(admin, root_keys=lambda: RootKeys([bytes(range(32))]))


def test_with_a_root_key_neither_the_store_nor_the_journal_learns_a_secret(deriving):
    keys = [applications.create(deriving, "shop"), applications.rotate(deriving, "shop")]
    stored = deriving.store.get("application", "shop").value
    assert [key["key_id"] for key in stored["derived_keys"]] == [key.key_id for key in keys] and stored["keys"] == []
    assert all(set(key) == {"key_id", "salt", "root", "created_at_ms"} for key in stored["derived_keys"])
    told = str([stored, audit.latest(deriving.store), keys])
    assert not any(key.secret in told for key in keys)
    assert all(applications.is_valid(deriving, key) for key in keys)
    assert not applications.is_valid(deriving, replace(keys[0], secret=keys[1].secret))
    with pytest.raises(StateConflict, match="revoke one first"):
        applications.rotate(deriving, "shop")


def test_a_key_in_clear_and_a_derived_one_are_valid_side_by_side_until_the_first_is_revoked(admin, deriving):
    first, second = applications.create(admin, "shop"), applications.rotate(deriving, "shop")
    assert all(applications.is_valid(deriving, key) for key in (first, second))
    left = applications.revoke(admin, "shop", first.key_id)
    assert [key.key_id for key in left.keys] == [second.key_id]
    assert first.secret not in str(admin.store.get("application", "shop").value)


def test_a_second_key_is_not_stored_in_clear_beside_a_derived_one(admin, deriving):
    key = applications.create(deriving, "shop")
    with pytest.raises(StateConflict, match=f"key {key.key_id} is derived from a root key.* use --secrets-key FILE"):
        applications.rotate(admin, "shop")
    assert [each.key_id for each in applications.show(admin, "shop")[0].keys] == [key.key_id]


def test_a_process_of_an_earlier_version_reads_the_keys_in_clear_and_keeps_the_derived_ones(admin, deriving):
    first, second = applications.create(admin, "shop"), applications.rotate(deriving, "shop")
    stored = admin.store.get("application", "shop").value
    assert [key["key_id"] for key in stored["keys"]] == [first.key_id], "the one field of keys that it reads"
    admin.store.put("application", "shop", {**stored, "keys": []}, 2)  # its revocation, with the field that it keeps
    assert [key.key_id for key in applications.show(admin, "shop")[0].keys] == [second.key_id]


def test_keys_in_clear_and_derived_ones_are_counted_for_operators(admin, deriving):
    applications.create(admin, "shop")
    applications.create(deriving, "till")
    applications.rotate(deriving, "shop")
    admin.store.put("application", "odd", {"keys": 7}, 0)
    entries = [(name, each.value) for name, each in admin.store.entries("application")]
    stored = applications.stored_keys(entries)
    assert (dict(stored.clear), stored.derived.total()) == ({"shop": 1}, 2)
    assert stored.in_clear == "1 application with 1 key whose secrets are in clear"
