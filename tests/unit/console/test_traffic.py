"""Traffic scheduling: topics are placed on broker groups after a preview, and a broker group is spared."""

from contextlib import contextmanager

import pytest

from common.admin import broker_groups, groups, topics
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from console.installation.broker_queries import Answers, BrokerLinks, BrokerQueries
from tests.unit.console.consoles import SETUP, WISH, text_of


class Engines(BrokerQueries):
    """Engines of which one group, if any, has a backlog; they have no messages."""

    backlog: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @contextmanager
    def open(self, timeout_s=0.0):
        yield BrokerLinks({}, list(self.faults))

    def groups(self, opened, prefix="", after="", limit=0):
        return list(self.backlog)

    def ask(self, opened, verb, rows, topic=None, **options):
        return Answers([{"lag": 7, "in_flight": 0}], [])


@pytest.fixture
def placed(console):
    broker_groups.put(console.store, {name: f"127.0.0.1:970{number}" for number, name in enumerate("abc")})
    admin = console.parts.configuration.admin("test")
    topics.create(admin, ["orders", "plain"], TopicSettings(queues=4))
    topics.set_topic(admin, "orders", TopicSettings(broker_groups=["a"]))
    console.with_parts(brokers=Engines(console.parts.configuration.view, b""))
    return console


def topic_of(console):
    return topics.show(console.parts.configuration.admin("test"), "orders")


def test_an_operator_sees_placed_topics_previews_a_change_makes_it_and_sees_who_has_applied_it(placed):
    operator = placed.as_role("operator", "otto")
    peer = placed.store.peer()
    peer.report_applied("producer_proxy@10.0.0.1:9700/host", placed.store.version())
    page = text_of(operator.get("/traffic"))
    assert "orders" in page and "a 4" in page and "plain" not in page and "1 of 1 processes" in page
    old, version = topic_of(placed)
    form = text_of(operator.get("/traffic/topics/orders?preview=1&to=b&to=c"))
    assert "It adds 4 queues (8 to 11)" in form and "Queues 4 to 7 take no more" in form
    assert topic_of(placed) == (old, version), "a preview changes nothing"
    assert (
        operator.post("/traffic/topics/orders", version=version, to=["b", "c"]).location == "/traffic?said=traffic.move"
    )
    new, _ = topic_of(placed)
    assert (new.broker_groups, new.queues, new.first_queue) == (("b", "c"), 12, 8)
    assert "0 of 1 processes" in text_of(operator.get("/traffic"))
    last = placed.parts.log.latest("move topic")[0]
    assert (last["old"]["broker_groups"], last["new"]["broker_groups"]) == (["a"], ["b", "c"])


def test_all_groups_are_the_same_as_none_and_the_present_ones_are_no_change(placed):
    operator, (_, version) = placed.as_role("operator"), topic_of(placed)
    answer = operator.post("/traffic/topics/orders", version=version, to=["a"])
    assert answer.status_code == 422 and "in these broker groups already" in text_of(answer)
    assert operator.post("/traffic/topics/orders", version=version, to=["a", "b", "c"]).status_code == 303
    assert topic_of(placed)[0].broker_groups == ()


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"to": ["x"]}, 422), ({"to": ["b"], "version": 1}, 409), ({"to": ["b"], "version": "x"}, 409)],
)
def test_a_wrong_group_and_a_stale_form_change_nothing(placed, fields, code):
    operator, (old, version) = placed.as_role("operator"), topic_of(placed)
    answer = operator.post("/traffic/topics/orders", **{"version": version, **fields})
    assert answer.status_code == code and topic_of(placed) == (old, version)


@pytest.mark.parametrize(
    ("engines", "sentence"),
    [
        ({"backlog": ("billing",)}, "billing has order by key and 7 messages to acknowledge"),
        ({"faults": ("The engine of a does not answer.",)}, "The engine of a does not answer."),
    ],
)
def test_the_order_by_key_of_a_group_is_not_broken_nor_its_backlog_guessed(placed, engines, sentence):
    groups.create(placed.parts.configuration.admin("test"), "billing", GroupSettings(order="key"))
    for name, value in engines.items():
        setattr(placed.parts.brokers, name, value)
    operator, (old, version) = placed.as_role("operator"), topic_of(placed)
    assert sentence in text_of(operator.get("/traffic/topics/orders?preview=1&to=b"))
    answer = operator.post("/traffic/topics/orders", version=version, to=["b"])
    assert answer.status_code == 422 and sentence in text_of(answer) and topic_of(placed) == (old, version)


def test_a_broker_group_is_spared_and_used_again_and_the_second_of_two_is_refused(placed):
    operator = placed.as_role("operator")
    assert operator.post("/traffic/groups/b", writes="keyed", seen="all").location == "/traffic?said=traffic.spare"
    assert "only those with a key or a checked id" in text_of(operator.get("/traffic"))
    assert operator.post("/traffic/groups/b", writes="keyed", seen="all").status_code == 409
    assert operator.post("/traffic/groups/b", writes="none", seen="keyed").status_code == 422
    assert operator.post("/traffic/groups/nine", writes="all", seen="all").status_code == 404
    assert operator.post("/traffic/groups/b", writes="all", seen="keyed").status_code == 303
    assert {each.writes for each in broker_groups.list_groups(placed.store)} == {"all"}


def test_a_request_names_broker_groups_that_exist_and_a_person_decides_on_it(placed):
    owner, operator = placed.as_role("owner"), placed.as_role("operator")
    assert "of a, b, c" in text_of(owner.get("/requests/new"))
    wish = {**WISH, "name": "heavy", "team": str(placed.team_id)}
    for wrong, sentence in (("a, x", "There is no broker group x."), ("a/b", "is not a name")):
        answer = owner.post("/requests", **{**wish, "broker_groups": wrong})
        assert answer.status_code == 422 and sentence in text_of(answer)
    made = owner.ask(name="heavy", broker_groups="b, a")
    assert "Broker groups b,a" in text_of(operator.get(f"/requests/{made}")).replace(", ", ",")
    operator.post(f"/requests/{made}/approve", version=1)
    found, _ = topics.show(placed.parts.configuration.admin("test"), "heavy")
    assert set(found.broker_groups) == {"a", "b"}


def test_a_program_does_the_same_by_the_api(placed):
    session = placed.account("otto", "operator")
    with placed.app.test_request_context():
        token = placed.parts.tokens.make(SETUP, session.account, "test", "operator", 1)
    headers = {"Authorization": f"Bearer {token}"}

    def call(path, **body):
        answer = placed.visitor().open(
            f"/api/v1{path}", method="POST" if body else "GET", headers=headers, json=body or None
        )
        return answer.status_code, answer.get_json()

    _, version = topic_of(placed)
    wanted = {"version": version, "broker_groups": ["b"]}
    code, told = call("/topics/orders/broker-groups", **wanted, dry_run=True)
    assert (code, told["added"], told["applied"]) == (200, 4, False) and topic_of(placed)[1] == version
    assert call("/topics/orders/broker-groups", **wanted)[1]["topic"]["broker_groups"] == ["b"]
    assert call("/topics/orders/broker-groups", **wanted)[0] == 409
    assert call("/broker-groups/c/writes", writes="keyed", seen="all") == (200, {"name": "c", "writes": "keyed"})
    found = call("/traffic")[1]
    assert [each["writes"] for each in found["broker_groups"]] == ["all", "all", "keyed"]
    (row,) = found["topics"]
    assert row["name"] == "orders" and {
        name: next(each for each in row["shares"] if each["takes"])[name] for name in ("broker_group", "takes")
    } == {"broker_group": "b", "takes": 4}
