"""What a request for a topic says beside its settings: the JSON schema of its bodies, order, replies, home."""

import json

import pytest

from common.admin import kafka_clusters, topics
from common.admin.kafka_clusters import KafkaClusterSettings
from common.admin.topics import TopicSettings
from common.config.errors import StoreUnavailable
from console.asking import message_schema
from console.asking.approval_policy import ApprovalPolicy
from console.asking.message_schema import TOO_LONG, schema_fault
from console.asking.request_approval import KAFKA_GAP_S, RequestApproval
from console.asking.topic_change import fields_of
from console.asking.topic_wish import parse_wish
from console.database.topic_notes import TopicNotes, notes_of
from console.database.user_requests import APPLIED, APPROVED
from console.errors import InvalidForm
from tests.unit.console.consoles import SETUP, WISH, text_of

SCHEMA = '{\n  "type": "object",\n  "required": ["amount"],\n  "properties": {"amount": {"type": "integer"}}\n}'
OTHER = SCHEMA.replace("integer", "number")


@pytest.fixture
def owner(console):
    """An owner whose team has the topic orders, with a schema."""
    browser = console.as_role("owner", "olga")
    number = browser.ask(body_format="json", body_schema=SCHEMA, order="key", replies="yes")
    assert console.as_role("operator", "otto").post(f"/requests/{number}/approve", version="1").status_code == 303
    return browser


def change(console, browser, **changed: str):
    topic, version = topics.show(console.parts.configuration.admin("test"), "orders")
    fields = {**fields_of(topic), "version": str(version), "reason": "Cents", **changed}
    return browser.post("/topics/orders/change", **fields)


def number_of(answer) -> int:
    assert answer.status_code == 303, text_of(answer)
    return int(answer.location.rpartition("/")[2])


def test_a_schema_is_on_the_topics_page_and_changes_by_a_request_with_a_difference(console, owner):
    page = text_of(owner.get("/topics/orders"))
    assert "JSON schema of the messages" in page and "messages of a key one after another" in page
    assert "requests with a reply" in page
    first, second = (number_of(change(console, owner, body_schema=OTHER, **more)) for more in ({}, {"grade": "high"}))
    html = owner.get(f"/requests/{first}").get_data(as_text=True)
    assert "</del>\n<ins>" in html, "each on a line of its own"
    assert "<del>-   &#34;properties&#34;: {&#34;amount&#34;: {&#34;type&#34;: &#34;integer&#34;}}</del>" in html
    assert "<ins>+   &#34;properties&#34;: {&#34;amount&#34;: {&#34;type&#34;: &#34;number&#34;}}</ins>" in html
    otto = console.as_role("operator", "ove")
    assert otto.post(f"/requests/{first}/approve", version="1").status_code == 303
    assert console.parts.requests.get(first).state == APPLIED
    assert notes_of(console.parts.database, "orders") == TopicNotes(OTHER, "key", True)
    late = otto.post(f"/requests/{second}/approve", version="1")
    assert late.status_code == 409 and "schema of topic orders was changed since" in text_of(late)
    assert "was changed since this was asked for" in text_of(otto.get(f"/requests/{second}"))
    assert otto.post(f"/requests/{second}/rebase", version="1").status_code == 303
    assert otto.post(f"/requests/{second}/approve", version="2").status_code == 303
    assert topics.show(console.parts.configuration.admin("test"), "orders")[0].grade == "high"


def test_a_schema_that_a_decided_request_changes_is_not_changed_by_another_one(console, owner):
    """The first is approved and not applied yet; the second was asked on the same text."""
    first, second = (number_of(change(console, owner, body_schema=text)) for text in (OTHER, "{}"))
    operator = console.as_role("operator", "ove")
    console.parts.requests.move(SETUP, first, ("requested", 1), APPROVED)
    answer = operator.post(f"/requests/{second}/approve", version="1")
    assert answer.status_code == 409 and "was changed since" in text_of(answer)


def test_a_topic_that_is_deleted_leaves_no_schema_to_the_next_of_its_name(console, owner):
    operator = console.as_role("operator", "ove")
    version = str(topics.show(console.parts.configuration.admin("test"), "orders")[1])
    assert operator.post("/topics/orders/delete", typed="orders", version=version).status_code == 303
    assert notes_of(console.parts.database, "orders") == TopicNotes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON text"),
        ("[1]", "a JSON object"),
        ('{"type": "objekt"}', "objekt"),
        ('{"$ref": "http://127.0.0.1:9/x"}', "other documents are not followed"),
        ('{"$ref": "file:///etc/passwd"}', "other documents are not followed"),
        ('{"pattern": "(?=a)"}', "regex"),
        ('{"a": "' + "x" * 16_000 + '"}', "at most 16,000"),
        ('{"not":' * 1_500 + "{}" + "}" * 1_500, "nested too deeply"),
    ],
)
def test_what_is_no_schema_is_refused_at_its_field(console, text, words):
    owner = console.as_role("owner")
    fields = {**WISH, "team": str(console.team_id), "body_format": "json", "body_schema": text}
    assert words in text_of(owner.post("/requests/check", **fields)), "while it is typed"
    answer = owner.post("/requests", **fields)
    page = text_of(answer)
    assert answer.status_code == 422 and words in page, page
    assert 'id="body_schema-fault"' in answer.get_data(as_text=True)


def test_a_schema_that_would_run_for_ever_is_ended(console, owner, monkeypatch):
    monkeypatch.setattr(message_schema, "PROCESS_S_MAX", 1.0)
    levels = {f"a{each}": {"allOf": [{"$ref": f"#/$defs/a{each + 1}"}] * 2} for each in range(40)}
    schema = json.dumps({"$ref": "#/$defs/a0", "$defs": {**levels, "a40": {"type": "string"}}})
    found = message_schema.body_check(schema, '"x"')
    assert found.schema_fault == TOO_LONG
    assert schema_fault('{"$ref": "#"}') == ""


def test_a_test_message_that_does_not_fit_is_sent_only_when_the_person_says_so(console, owner):
    answer = owner.post("/topics/orders/messages", body='{"amount": "<b>"}')
    page = text_of(answer)
    assert answer.status_code == 422 and "does not fit the topic's JSON schema" in page
    assert "amount: &#34;&lt;b&gt;&#34; is not of type &#34;integer&#34;" in page
    assert "no JSON text" in text_of(owner.post("/topics/orders/messages", body="amount"))
    for fields in ({"body": '{"amount": 3}'}, {"body": "amount", "unfit": "on"}):
        answer = owner.post("/topics/orders/messages", **fields)
        assert answer.status_code == 503 and "no producer proxy" in text_of(answer), "it would have been sent"


def test_all_messages_in_one_order_take_a_single_queue_and_no_more_than_it_carries():
    wish = parse_wish({**WISH, "order": "all"})
    assert (wish.queues, wish.settings()["queues"]) == (1, 1)
    with pytest.raises(InvalidForm) as caught:
        parse_wish({**WISH, "order": "all", "peak_messages": "2001"})
    assert "2,000 messages/s" in caught.value.faults["order"]


def test_what_cannot_be_in_kafka_is_refused_at_its_field(console):
    kafka_clusters.add(console.parts.configuration.admin("test"), "main", KafkaClusterSettings(bootstrap="127.0.0.1:9"))
    owner = console.as_role("owner")
    assert "the Kafka cluster main" in text_of(owner.get("/requests/new"))
    fields = {**WISH, "team": str(console.team_id), "home": "kafka:main", "delay_hours": "1", "replies": "yes"}
    answer = owner.post("/requests", **{**fields, "durability": "fsync"})
    html = answer.get_data(as_text=True)
    assert answer.status_code == 422
    assert all(f'id="{field}-fault"' in html for field in ("delay_hours", "replies", "durability"))
    for home, words in (("kafka:other", "There is no Kafka cluster other"), ("kafka:", "Choose"), ("disk", "Choose")):
        answer = owner.post("/requests", **{**WISH, "team": str(console.team_id), "home": home})
        assert answer.status_code == 422 and words in text_of(answer)
    wish = parse_wish({**WISH, "home": "kafka:main"})
    assert ApprovalPolicy(is_on=True).reasons(wish, 0) == ["Its home is the Kafka cluster main."]


class Homes:
    """As the command would: fails first, then creates the topic with the queues that Kafka has."""

    def __init__(self, console) -> None:
        self.console, self.faults, self.calls = console, ["kafka main: topic orders: not found: create it there"], 0

    def create(self, who, name, settings):
        self.calls += 1
        if self.faults:
            raise StoreUnavailable(self.faults.pop())
        made = TopicSettings(**{**settings, "queues": 12})
        topics.create(self.console.parts.configuration.admin(who), [name], made)


def test_a_topic_in_kafka_is_created_by_the_command_and_tried_again_once_a_minute(console):
    homes, configuration = Homes(console), console.parts.configuration
    kafka_clusters.add(configuration.admin("test"), "main", KafkaClusterSettings(bootstrap="127.0.0.1:9"))
    console.with_parts(approval=RequestApproval(console.parts.requests, console.store, console.clock, homes))
    number = console.as_role("owner").ask(home="kafka:main")
    answer = console.as_role("operator").post(f"/requests/{number}/approve", version="1")
    assert answer.status_code == 503 and "create it there" in text_of(answer)
    console.parts.approval.resume()
    assert homes.calls == 1 and console.parts.requests.get(number).state == APPROVED
    console.clock.advance(int(KAFKA_GAP_S * 1000))
    console.parts.approval.resume()
    assert console.parts.requests.get(number).state == APPLIED
    topic = topics.show(configuration.admin("test"), "orders")[0]
    assert (topic.home, topic.queues, topic.id_window_ms) == ("kafka:main", 12, 0)
