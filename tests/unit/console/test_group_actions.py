"""Actions on groups: who may do them, damaged previews, pausing, live tails that are bounded."""

import pytest

from common.admin import groups, topics
from common.admin.groups import GroupSettings
from common.admin.topics import TopicSettings
from console.entries import time_ms, whole
from console.installation.group_resets import QueueMove
from console.installation.live_tail import TAILS_MAX, TAILS_PER_ACCOUNT_MAX, LiveTail, tail_places
from console.installation.stored_messages import FoundMessage
from engine.link.errors import LinkError
from tests.unit.console.consoles import text_of

HOSTILE = "<script>alert(1)</script>\u202e"


class OneQueue:
    """Stands for the engines' positions: one queue at 10, which moves where it is told to."""

    def __init__(self) -> None:
        self.moved: list[dict[int, int]] = []

    def preview(self, group, topic, to, queue=None):
        return [QueueMove(0, 10, 4)]

    def move(self, group, topic, offsets):
        self.moved.append(offsets)
        return [QueueMove(0, 10, offsets[0])]


@pytest.fixture
def with_group(console):
    """A defined group `readers` of topic `orders`."""
    admin = console.parts.configuration.admin("test")
    topics.create(admin, ["orders"], TopicSettings())
    groups.create(admin, "readers", GroupSettings(topics=["orders"]))
    return console.with_parts(positions=OneQueue())


def test_a_preview_says_what_is_read_again_and_a_reset_goes_where_it_has_shown(with_group):
    browser = with_group.as_role("operator", "otto")
    page = text_of(browser.get("/groups/readers/reset?topic=orders&to=shift&value=-6"))
    assert "0 messages are skipped, 6 are read again" in page and with_group.parts.positions.moved == []
    answer = browser.post("/groups/readers/reset", topic="orders", moves="0:4")
    assert answer.status_code == 303 and with_group.parts.positions.moved == [{0: 4}]
    record = with_group.parts.log.latest(limit=1)[0]
    assert (record["who"], record["action"], record["old"], record["new"]) == (
        "otto", "reset progress", {"0": 10}, {"0": 4},
    )  # fmt: skip
    assert "console:otto" in text_of(browser.get("/audit?of=store"))


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"topic": "orders"}, {"topic": "orders", "moves": "0:-1"}, {"topic": "orders", "moves": "x"},
        {"topic": "orders", "moves": "0:4,"}, {"topic": "bills", "moves": "0:4"},
        {"topic": "orders", "moves": "99999:1"}, {"topic": "orders", "moves": "0:" + "9" * 40},
    ],
)  # fmt: skip
def test_a_damaged_preview_moves_nothing(with_group, fields):
    answer = with_group.as_role("operator").post("/groups/readers/reset", **fields)
    assert answer.status_code == 422 and with_group.parts.positions.moved == []


@pytest.mark.parametrize(
    "query", ["to=time&value=yesterday", "to=offset&value=-1", "to=shift&value=much", "to=nowhere", "to=latest&queue=x"]
)
def test_a_wrong_target_is_a_sentence_and_no_preview(with_group, query):
    page = text_of(with_group.as_role("operator").get(f"/groups/readers/reset?topic=orders&{query}"))
    assert "Give a" in page and "Move the group" not in page


def test_an_owner_acts_on_a_group_only_when_the_team_owns_every_topic_of_it(with_group):
    owner, operator = with_group.as_role("owner"), with_group.as_role("operator")
    paths = ("/groups/readers/reset", "/groups/readers/dead-letters", "/groups/readers/dead-letters.csv")
    assert {owner.get(path).status_code for path in paths} == {403}
    assert owner.post("/groups/readers/pause").status_code == 403
    number = owner.ask(name="bills")
    assert operator.post(f"/requests/{number}/approve", version="1").status_code == 303
    groups.create(with_group.parts.configuration.admin("test"), "own", GroupSettings(topics=["bills"]))
    assert owner.get("/groups/own/reset").status_code == 200
    assert owner.post("/groups/own/pause").status_code == 303
    groups.set_group(with_group.parts.configuration.admin("test"), "own", GroupSettings(topics=["bills", "orders"]))
    assert owner.post("/groups/own/resume").status_code == 403


def test_pausing_and_resuming_is_written_to_the_configuration_and_audited(with_group):
    browser = with_group.as_role("operator")
    for action, is_paused in (("pause", True), ("resume", False)):
        assert browser.post(f"/groups/readers/{action}").status_code == 303
        assert groups.show(with_group.parts.configuration.admin("test"), "readers")[0].paused is is_paused
    assert [row["action"] for row in with_group.parts.log.latest(limit=2)] == ["resume", "pause"]


def test_a_group_that_is_neither_defined_nor_known_cannot_be_paused_into_being(console):
    assert console.as_role("operator").post("/groups/mistyped/pause").status_code == 404
    assert console.store.count("group") == 0


def test_an_engine_that_is_away_is_a_page_with_a_sentence(with_group):
    answer = with_group.as_role("operator").get("/groups/readers/dead-letters")
    assert answer.status_code == 503 and "An engine does not answer" in text_of(answer)


class Tailed(LiveTail):
    """A tail that finds one message, and then loses its engine."""

    def __init__(self) -> None:
        self.places = tail_places()

    def follow(self, topic, queues, wanted):
        yield []
        yield [FoundMessage(topic, 0, 7, "id", 1_700_000_000_000, HOSTILE, "", {}, HOSTILE.encode())]
        raise LinkError("the engine closed the link")


def test_a_tail_is_text_tells_its_end_and_gives_its_place_back(with_group):
    with_group.with_parts(tail=Tailed())
    answer = with_group.as_role("operator").get("/topics/orders/messages/live")
    events = answer.get_data(as_text=True)
    answer.close()
    assert answer.mimetype == "text/event-stream" and "\u202e" not in events and "U+202E" in events
    assert "event: end" in events and "the engine closed the link" in events
    assert with_group.parts.tail.places.count == 0


def test_tails_are_bounded_by_person_and_in_all(with_group):
    with_group.with_parts(tail=Tailed())
    places = with_group.parts.tail.places
    for _ in range(TAILS_PER_ACCOUNT_MAX):
        assert places.take("otto") == ""
    answer = with_group.as_role("operator", "otto").get("/topics/orders/messages/live")
    assert answer.status_code == 429 and "close one first" in text_of(answer)
    for number in range(TAILS_MAX - TAILS_PER_ACCOUNT_MAX):
        assert places.take(f"person {number}") == ""
    assert "in all" in places.take("olga")
    places.give_back("otto")
    assert places.take("olga") == ""


def test_a_filter_with_a_fault_starts_no_tail(with_group):
    with_group.with_parts(tail=Tailed())
    answer = with_group.as_role("operator").get("/topics/orders/messages/live?filter=a%20=")
    assert answer.status_code == 422 and with_group.parts.tail.places.count == 0


@pytest.mark.parametrize(("text", "found"), [("1,000", 1000), ("", None), ("-1", None), ("٣", None), ("9" * 30, None)])
def test_whole_numbers_are_read_with_separators_and_nothing_else(text, found):
    assert whole(text, 10_000) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [("1970-01-01T00:00:01", 1000), ("1970-01-01T01:00:01+01:00", 1000), ("0001-01-01T00:00", 0), ("soon", None)],
)
def test_times_without_a_zone_are_utc(text, found):
    assert time_ms(text) == found
