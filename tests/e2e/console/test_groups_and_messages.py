"""Stories of one group and its messages, in Chromium against a real Penstock: a dead letter is redriven, a position is
reset after a preview, deliveries pause, a delayed message is cancelled.
"""

import json
import re
import time

import pytest
from playwright.sync_api import expect

from common.contract import Credential, Message, SendRequest
from common.credential import mint
from common.proxy_link import ProxyLink
from tests.e2e.console.axe import serious_findings
from tests.e2e.console.test_first_topic import Person
from tests.waiting import until

TOPIC, GROUP = "payments.settled", "ledger"
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def ada(browser, penstock):
    pattern = re.compile(r"^Console: (http://\S+/link/\S+)\nPenstock serves", re.M)
    link = until(lambda: pattern.search(penstock.told()), "up says where the console is")[1]
    person = Person(browser, link.partition("/link/")[0])
    person.open_link(link, name="ada")
    penstock.run("topic", "create", TOPIC, "--queues", "1")
    penstock.run("group", "create", GROUP, "--topic", TOPIC, "--attempts-max", "1", "--retry", "0")
    yield person
    person.close()


def send(penstock, *bodies: str, **options: str) -> None:
    more = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    for body in bodies:
        done = penstock.call("send", TOPIC, body, "-q", *more)
        assert done.returncode == 0, done.stderr


def pull(penstock, *options: str) -> list[dict]:
    """Pull as the group until nothing comes."""
    done = penstock.call("pull", TOPIC, "--group", GROUP, "-o", "json", "--max", "50", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_dead(penstock) -> bool:
    done = penstock.call("group", "dead-letters", "list", GROUP, "-o", "json")
    return done.returncode == 0 and len(json.loads(done.stdout)) == 2


def test_a_dead_letter_is_looked_at_exported_and_redriven(ada, penstock):
    send(penstock, HOSTILE, '=HYPERLINK("x")')
    assert len(pull(penstock, "--no-ack")) == 2
    until(lambda: pull(penstock, "--no-ack") is not None and is_dead(penstock), "both are dead letters", 30)
    page = ada.page
    page.goto(f"/groups/{GROUP}")
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_text("2 dead letters")).to_be_visible()
    page.locator("tbody a").first.click()
    expect(page.locator("pre")).to_contain_text(HOSTILE)
    assert serious_findings(page) == []
    page.get_by_role("link", name=f"{TOPIC} 0 / 0").click()
    page.get_by_role("link", name="Trace").click()
    expect(page.get_by_role("row", name=GROUP).first).to_contain_text("dead-lettered")
    page.goto(f"/groups/{GROUP}/dead-letters")
    with page.expect_download() as exported:
        page.get_by_role("link", name="Export as CSV").click()
    assert "'=HYPERLINK" in exported.value.path().read_text()
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Redrive the chosen ones").click()
    expect(page.get_by_text("1 message was sent again.")).to_be_visible()
    expect(page.get_by_text("1 dead letter", exact=True)).to_be_visible()
    assert [each["body"] for each in pull(penstock)] == [HOSTILE]
    page.get_by_role("button", name="Redrive all that match the filter").click()
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    assert [each["body"] for each in pull(penstock)] == ['=HYPERLINK("x")']
    page.goto(f"/topics/{TOPIC}/messages/0/3/trace")
    expect(page.get_by_role("row", name=GROUP).first).to_contain_text("settled")
    assert penstock.call("pull", TOPIC, "--group", "onlookers", "--max", "1", "--no-ack").returncode == 0
    page.goto(f"/topics/{TOPIC}/messages/0/0/trace")
    expect(page.get_by_role("row", name=re.compile("has it( disconnected)?$"))).to_contain_text("127.0.0.1:")


def test_a_position_moves_as_the_preview_has_shown(ada, penstock):
    page = ada.page
    page.goto(f"/groups/{GROUP}/reset")
    page.select_option("#to", "shift")
    page.fill("#value", "-3")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("0 messages are skipped, 3 are read again")).to_be_visible()
    assert pull(penstock) == [], "a preview moves nothing"
    send(penstock, "after the preview")
    assert [each["body"] for each in pull(penstock)] == ["after the preview"]
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_text("moved as the preview has shown")).to_be_visible()
    assert len(pull(penstock)) == 4, "it goes to the shown offset, whatever was read meanwhile"


def test_a_paused_group_gets_nothing_until_it_is_resumed(ada, penstock):
    page = ada.page
    page.goto(f"/groups/{GROUP}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".state.paused")).to_be_visible()
    until(lambda: _state(penstock)["paused"], "it is paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".state.paused")).to_have_count(0)
    assert not _state(penstock)["paused"]


def _state(penstock) -> dict:
    return penstock.run("group", "show", GROUP)


def test_a_delayed_message_is_listed_and_cancelled(ada, penstock):
    shop = penstock.application("clock", send=["payments.*"])
    credential = Credential(*mint(shop.app, shop.key_id, shop.secret, time.time_ns() // 1_000_000))
    message = Message(topic=TOPIC, body=b"much later", delay_ms=3_600_000)
    with ProxyLink("send", penstock.producer) as link:
        request, empty = SendRequest(credential, [message], 5_000, None), SendRequest(credential, [])
        until(lambda: link.call(request, 6.0, empty=empty).results[0].code < 100, "the proxy knows the application")
    page = ada.page
    page.goto(f"/topics/{TOPIC}/delayed")
    expect(page.get_by_text("1 pending")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="No delayed message is pending")).to_be_visible()
    assert penstock.run("timer", "list", "--topic", TOPIC) in (None, [])


def test_a_live_tail_shows_new_messages_that_match_and_ends_with_its_page(ada, penstock):
    page = ada.page
    page.goto(f"/topics/{TOPIC}/messages")
    page.fill("#tail-filter", "TAGS = 'urgent'")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("New messages appear here")).to_be_visible()
    send(penstock, "not of interest")
    send(penstock, HOSTILE, tag="urgent")
    rows = page.locator("[data-tail-rows] tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(HOSTILE)
    assert page.title() != "1"
    page.get_by_role("button", name="Stop").click()
    for _ in range(3):  # only 2 tails of a person may run at once: a closed page gives its place back
        page.goto(f"/topics/{TOPIC}/messages")
        until(lambda: _starts_tail(page), "a place is free", 30)


def _starts_tail(page) -> bool:
    """Whether a further tail is accepted."""
    page.get_by_role("button", name="Start").click()
    state = page.locator("[data-tail-state]")
    expect(state).to_have_text(re.compile("New messages appear here|The tail was refused"))
    return "New messages" in state.inner_text()


def test_messages_are_found_by_key_and_by_filter(ada, penstock):
    send(penstock, "of customer 9", key="customer-9")
    page = ada.page
    page.goto(f"/topics/{TOPIC}/messages")
    page.fill("#key-sought", "customer-9")
    page.locator("form", has=page.locator("#key-sought")).get_by_role("button", name="Find").click()
    expect(page.get_by_role("cell", name="of customer 9")).to_be_visible()
    page.fill("#filter", "KEYS = 'customer-9' AND")
    page.locator("form", has=page.locator("#filter")).get_by_role("button", name="Find").click()
    expect(page.get_by_role("alert")).to_contain_text("The filter has a fault at character")
    page.fill("#filter", "KEYS STARTSWITH 'customer'")
    page.locator("form", has=page.locator("#filter")).get_by_role("button", name="Find").click()
    expect(page.get_by_role("cell", name="of customer 9")).to_be_visible()
    expect(page.get_by_text("messages were read")).to_be_visible()
