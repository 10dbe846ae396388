"""Masking: what a role does not see is in no page, download, export, stream or search."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.admin import topics
from common.admin.topics import TopicSettings
from console.errors import InvalidForm
from console.installation.dead_letters import DeadLetterRow
from console.installation.live_tail import StreamPlaces, tail_places
from console.installation.stored_messages import FoundMessage
from console.roles import Role
from console.security.masking import HIDDEN, MaskingRule, checked_rule, hide, mask_of
from tests.unit.console.consoles import SETUP, text_of

SECRET = "4111-1111"
BODY = json.dumps({"card": {"number": SECRET, "holder": "Ada"}, "items": [{"card": {"number": SECRET}}]}).encode()


def message(body=BODY, topic="orders"):
    return FoundMessage(
        topic, 0, 0, "id-1", 1_700_000_000_000, f"key-{SECRET}", "", {"token": SECRET, "kind": "a"}, body
    )


def masked(*fields, body=BODY, role=Role.OWNER, topics="*", least=Role.ADMIN):
    rules = [MaskingRule(0, topics, field, least) for field in fields]
    return mask_of(rules, "orders", role).of(message(body))


def test_a_path_hides_a_value_and_leaves_the_others():
    shown = json.loads(masked("body.card.number").body)
    assert shown["card"] == {"number": HIDDEN, "holder": "Ada"}
    assert shown["items"][0]["card"]["number"] == SECRET


@pytest.mark.parametrize(
    "path", ["items.card.number", "items.0.card.number", "items.*.card.number", "**.number", "items.**"]
)
def test_paths_go_through_lists_and_any_depth(path):
    assert SECRET not in json.dumps(json.loads(masked(f"body.{path}").body)["items"])


@pytest.mark.parametrize(
    "body", [b"card=" + SECRET.encode(), b"\xff" + SECRET.encode(), b"[" * 100_000 + SECRET.encode()]
)
def test_a_body_that_is_no_json_is_hidden_whole_by_a_rule_for_a_part_of_it(body):
    assert masked("body.card.number", body=body).body == HIDDEN.encode()


def test_a_key_that_stands_twice_in_an_object_shows_no_value():
    body = b'{"card": {"number": "4111-1111"}, "card": {"number": "4111-1111", "holder": "Ada"}}'
    assert SECRET.encode() not in masked("body.card.number", body=body).body


def test_keys_and_properties_are_hidden_by_their_rules():
    shown = masked("key", "properties.tok*")
    assert (shown.key, shown.properties) == (HIDDEN, {"token": HIDDEN, "kind": "a"})


def test_a_rule_counts_for_its_topics_and_the_roles_below_its_own():
    assert masked("key", role=Role.ADMIN) == message()
    assert masked("key", topics="payments.*") == message()
    assert masked("key", least=Role.OPERATOR, role=Role.OWNER).key == HIDDEN


def test_every_rule_counts_for_dead_letters_of_a_group_which_come_from_any_topic():
    assert mask_of([MaskingRule(0, "payments", "key", Role.ADMIN)], "_dlq.billing", Role.OPERATOR).key


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@given(JSON, st.lists(st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=3).map(tuple), max_size=3))
def test_hiding_keeps_the_shape_and_never_adds_a_value(value, paths):
    def leaves(each):
        if isinstance(each, dict):
            return [leaf for inner in each.values() for leaf in leaves(inner)]
        if isinstance(each, list):
            return [leaf for inner in each for leaf in leaves(inner)]
        return [repr(each)]

    shown = hide(value, paths)
    assert set(leaves(shown)) <= {*leaves(value), repr(HIDDEN)}
    if isinstance(value, dict) and isinstance(shown, dict):
        assert shown.keys() == value.keys()


@pytest.mark.parametrize(
    ("topics_of", "field", "role"),
    [("", "key", "admin"), ("a" * 250, "key", "admin"), ("*", "headers.x", "admin"), ("*", "body..x", "admin"),
     ("*", "body." + "a." * 20 + "b", "admin"), ("*", "key", "viewer"), ("*", "key", "root"), ("[a", "key", "admin")],
)  # fmt: skip
def test_a_rule_with_a_fault_is_refused_by_its_field(topics_of, field, role):
    with pytest.raises(InvalidForm):
        checked_rule(topics_of, field, role)


@dataclass
class Engines:
    """Stands for the engines' messages: every look-up finds the same one."""

    places: StreamPlaces

    def one(self, topic, queue, offset):
        return message(topic=topic)

    def browse(self, topic, queue, offset, limit):
        return [self.one(topic, queue, offset)]

    by_id = since = by_key = lambda self, topic, *_: [message(topic=topic)]

    def oldest(self, group, choice, limit):
        row = DeadLetterRow("main", 0, 1, "attempts", "", 5, "orders", 0, 0, "id-1", f"key-{SECRET}", None)
        return [row], False

    def messages(self, group, rows):
        return [(row, message(topic="_dlq.billing")) for row in rows]

    def follow(self, topic, queues, wanted):
        return iter([[message(topic=topic)]])

    @property
    def tail(self):
        return self


PATHS = (
    "/topics/orders/messages?by=id&id=1", "/topics/orders/messages?by=place&queue=0&offset=0",
    "/topics/orders/messages?by=time&from=2026-01-01T00:00", f"/topics/orders/messages?by=key&key=key-{SECRET[:4]}",
    "/topics/orders/messages/0/0?view=text", "/topics/orders/messages/0/0?view=json", "/topics/orders/messages/0/0?view=hex",
    "/topics/orders/messages/0/0/body", "/topics/orders/messages/live", "/groups/billing/dead-letters",
    "/groups/billing/dead-letters.csv", "/groups/billing/dead-letters.jsonl",
)  # fmt: skip


@pytest.fixture
def masking(console):
    """The console with a topic, a group, rules that hide each SECRET from operators, and engines that have it."""
    topics.create(console.parts.configuration.admin("test"), ["orders"], TopicSettings())
    engines = Engines(tail_places())
    for field in ("key", "body.**.number", "properties.token"):
        console.parts.masking.add(SETUP, MaskingRule(0, "orders", field, Role.ADMIN))
    console.with_parts(messages=engines, dead_letters=engines, tail=engines)
    return console


@pytest.mark.parametrize("path", PATHS)
def test_no_door_shows_a_masked_field(masking, monkeypatch, path):
    monkeypatch.setattr("console.pages.dead_letters.checked_topics", lambda name: ["orders"])
    seen = {role: masking.as_role(role).get(path).get_data(as_text=True) for role in ("operator", "admin")}
    hexed = SECRET.encode().hex(" ")
    assert SECRET not in seen["operator"] and hexed not in seen["operator"]
    assert SECRET in seen["admin"] or hexed in seen["admin"]


@pytest.mark.parametrize("query", ["by=key&key=a", "by=filter&filter=token = 'a'"])
def test_what_is_masked_cannot_be_searched_for(masking, query):
    page = text_of(masking.as_role("operator").get(f"/topics/orders/messages?{query}"))
    assert "masked for your role" in page


def test_a_live_tail_with_a_filter_is_refused_where_properties_are_masked(masking):
    assert masking.as_role("operator").get("/topics/orders/messages/live?filter=token = 'a'").status_code == 422


def test_an_administrator_adds_and_removes_rules_and_the_audit_log_tells_both(console):
    browser = console.as_role("admin")
    wrong = browser.post("/masking", topics="*", field="headers.x", role="admin")
    assert wrong.status_code == 422 and "Give key, body" in text_of(wrong)
    assert browser.post("/masking", topics="pay.*", field="body.card", role="admin").status_code == 303
    (rule,) = console.parts.masking.all()
    assert "body.card" in text_of(browser.get("/masking"))
    assert browser.post(f"/masking/{rule.rule_id}/remove").status_code == 303
    assert browser.post(f"/masking/{rule.rule_id}/remove").status_code == 409
    log = text_of(browser.get("/audit"))
    assert "add masking rule" in log and "remove masking rule" in log
