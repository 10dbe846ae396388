"""The sample data that every page is looked at with: by the tests of all pages, and for pictures of them.

The samples of `console.routes` name its topics (`orders.created`, `web.clicks`), groups (`billing`, `shipping`),
applications (`shop`, `till`), requests and the plan `shop`.
"""

import json
import re
import time
from contextlib import ExitStack
from dataclasses import replace

from playwright.sync_api import Page

from common.clock import SystemClock
from common.config import open_store
from common.contract import Credential, Message, PullRequest, SendRequest
from common.minting import mint
from common.proxy_link import ProxyLink
from migration.entries import PlanStore
from migration.plan import parse_plan
from migration.recipes.course import PlanStep
from tests.e2e.running import RunningPenstock
from tests.waiting import until

OPTIONS, ENVIRONMENT = ("--replicas", "2"), {"PENSTOCK_CONSOLE": "1"}
"""Of the `penstock up` that is filled."""
PASSWORD = "a long password"
ASKED_TOPICS, TOPICS = ("orders.created", "orders.paid"), ("payments.settled", "stock.moved", "web.clicks")
PLAN = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders.paid, stock.moved]\n"
DEAD_LETTERS = 6


def first_link(penstock: RunningPenstock) -> str:
    """The one-time link of the first account."""
    return until(lambda: re.search(r"^Console: (\S+)", penstock.told(), re.M), "the address of the console")[1]


def make_account(page: Page) -> None:
    """Fill the form of a one-time link, which the page shows."""
    for field, value in {"name": "ada", "password": PASSWORD, "again": PASSWORD}.items():
        page.fill(f"#{field}", value)
    page.locator("button.main").click()
    page.get_by_role("heading", name="Overview").wait_for()


def fill(penstock: RunningPenstock, page: Page, opened: ExitStack) -> None:
    """Fill an installation by commands, clients and the pages of an administrator.

    Args:
        opened: keeps clients connected.
    """
    alarm(page)
    ask_for_topics(page)
    penstock.run("topic", "create", *TOPICS)
    assert penstock.application("shop", send=["orders.*"], pull=["*"]).app == "shop"
    send_and_pull(penstock)
    plan_move(penstock)
    connect(penstock, opened)
    ask_for_more(page)
    until(lambda: bury(penstock) >= DEAD_LETTERS, "the messages of a failed attempt are dead letters", 60)
    until(lambda: fires(page), "an alert fires", 90)


def alarm(page: Page) -> None:
    """A channel, and a rule whose alert fires soon."""
    page.goto("/channels")
    page.fill("#name", "Operations")
    page.fill("#target", "https://hooks.example.org/penstock")
    page.get_by_role("button", name="Add the channel").click()
    page.goto("/alerts")
    row = page.locator("tr", has_text="Age of the oldest message that a group")
    row.get_by_text("Change").click()
    row.locator("#threshold-lag").fill("5")
    row.locator("#hold-lag").fill("0")
    row.get_by_role("button", name="Save").click()


def fires(page: Page) -> bool:
    page.goto("/alerts")
    return page.locator(".state.firing").count() > 0


def ask_for_topics(page: Page) -> None:
    """Requests 1, which is approved, and 2."""
    for name in ASKED_TOPICS:
        page.goto("/requests/new")
        page.fill("#name", name)
        page.fill("#description", "Orders of the shop, for billing and the warehouse")
        page.get_by_role("button", name="Ask for it").click()
    page.goto("/requests/1")
    page.get_by_label("Reason").fill("Fits the shop's share")
    page.get_by_role("button", name="Approve").click()
    page.locator("#applied .check.good").wait_for()


def send_and_pull(penstock: RunningPenstock) -> None:
    """Messages, groups with lag, a delayed message, and a group whose deliveries fail."""
    lines = "\n".join(f'{{"order": {number}, "total": {number * 7 % 90}.50}}' for number in range(1, 41))
    for arguments, data in (
        (("send", "--topic", "orders.created", "--lines", "-q"), lines.encode()),
        (("send", "web.clicks", "a reminder", "--delay", "2h", "-q"), None),
        (("pull", "orders.created", "--group", "billing", "--max", "25"), None),
        (("pull", "orders.created", "--group", "warehouse", "--max", "5"), None),
    ):
        assert penstock.call(*arguments, data=data).returncode == 0, arguments
    failing = ("--topic", "orders.created", "--attempts-max", "1", "--retry", "0", "--invisible-ms", "1000")
    penstock.run("group", "create", "shipping", *failing)
    pulled = penstock.call("pull", "orders.created", "--group", "shipping", "--max", str(DEAD_LETTERS), "--no-ack")
    assert pulled.returncode == 0


def bury(penstock: RunningPenstock) -> int:
    """Let the group fail with what it gets; the number of its dead letters."""
    penstock.call("pull", "orders.created", "--group", "shipping", "--max", "1", "--wait", "0", "--no-ack")
    listed = penstock.call("group", "dead-letters", "list", "shipping", "-o", "json")
    return len(json.loads(listed.stdout)) if listed.returncode == 0 else 0


def plan_move(penstock: RunningPenstock) -> None:
    """A plan that is ready for its cut."""
    store = open_store(penstock.facts["config"])
    plans = PlanStore(store, SystemClock(), "cli:ada@desk")
    entry = plans.add(parse_plan(PLAN, "plan"))
    for step in (PlanStep.COPYING, PlanStep.VERIFIED):
        entry = plans.write(entry, replace(entry.state, step=step), f"now {step}")
    store.close()


def connect(penstock: RunningPenstock, opened: ExitStack) -> None:
    """Clients that stay connected: two that send, one that pulls."""
    till = penstock.application("till", send=["orders.*", "web.*"], pull=["*"])
    credential = Credential(**mint(till.app, till.key_id, till.secret, int(time.time() * 1000))._asdict())
    for topic in ("orders.created", "web.clicks"):
        link = opened.enter_context(ProxyLink("send", penstock.producer))
        for number in range(3):
            message = Message(topic=topic, body=b'{"till": %d}' % number)
            assert link.call(SendRequest(credential=credential, messages=[message]), 5).results[0].code == 0
    link = opened.enter_context(ProxyLink("pull", penstock.consumer))
    assert link.call(PullRequest(credential=credential, group="warehouse", topics=["orders.created"]), 5).code == 0
    assert penstock.call("pull", "web.clicks", "--group", "statistics", "--max", "1").returncode == 0


def ask_for_more(page: Page) -> None:
    """A quota that request 2 passes; requests 3 for consumption and 4 for a change; a rule of masking."""
    page.goto("/quotas")
    page.get_by_text("Change").first.click()
    for field, value in (("topics_max", "2"), ("messages_max", "400"), ("day_gib_max", "5")):
        page.locator(f"[id^=q][id$={field}]").first.fill(value)
    page.get_by_role("button", name="Save").first.click()
    page.goto("/consumption/new")
    wanted = {"name": "reports", "description": "Reports", "application": "shop", "topics": "orders.created"}
    for field, value in wanted.items():
        page.fill(f"#{field}", value)
    page.get_by_role("button", name="Ask for it").click()
    page.goto("/topics/orders.created/change")
    page.fill("#rate_messages", "400")
    page.fill("#reason", "The sale begins")
    page.get_by_role("button", name="Ask for it").click()
    page.get_by_text("The sale begins").first.wait_for()
    page.goto("/masking")
    page.fill("#topics", "payments.*")
    page.fill("#field", "body.card.number")
    page.get_by_role("button", name="Add").first.click()
