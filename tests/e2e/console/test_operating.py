"""Consumption that is asked for, a master that is switched, a migration that is followed: in Chromium against a real
Penstock with two brokers in its group.
"""

import json
import os
import re
import subprocess
import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from common.clock import SystemClock
from common.config import open_store
from common.contract import Credential, Message, PullRequest, SendRequest
from common.minting import mint
from common.proxy_link import ProxyLink, ProxyUnreachable
from migration.entries import PlanStore
from migration.plan import parse_plan
from migration.recipes.course import PlanStep
from tests.e2e.console.axe import serious_findings
from tests.e2e.console.test_first_topic import Person
from tests.e2e.running import PENSTOCK
from tests.waiting import until

TEXT = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [stock]\n"
LINES_MS = 30_000  # a command starts in a second of a processor


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory("--replicas", "2", environment={"PENSTOCK_CONSOLE": "1"})


@pytest.fixture(scope="module")
def ada(browser, penstock):
    pattern = re.compile(r"^Console: (http://\S+/link/\S+)\nPenstock serves", re.M)
    link = until(lambda: pattern.search(penstock.told()), "up says where the console is")[1]
    person = Person(browser, link.partition("/link/")[0])
    person.open_link(link, name="ada")
    yield person
    person.close()


def test_a_filter_is_tried_asked_for_approved_and_delivers_what_the_trial_has_shown(ada, penstock):
    shop = penstock.application("shop")
    penstock.run("topic", "create", "orders", "--queues", "2")
    for country, count in (("DE", 2), ("US", 1)):
        lines = "\n".join([f"to {country}"] * count).encode()
        done = penstock.call(
            "send", "--topic", "orders", "--lines", "--property", f"country={country}", "-q", data=lines
        )
        assert done.returncode == 0, done.stderr
    page = ada.page
    page.goto("/topics/orders")
    page.get_by_role("link", name="Ask to consume it").click()
    page.fill("#name", "billing")
    page.fill("#description", "Bills for Europe")
    page.fill("#application", "shop")
    page.fill("#filter", "country IN ('DE', 'FR'")
    expect(page.locator("#preview")).to_contain_text("The filter has a fault")
    page.fill("#filter", "country IN ('DE', 'FR')")
    expect(page.locator("#preview")).to_contain_text("Application shop may pull 1 topic as the group")
    expect(page.locator("#preview")).to_contain_text("An operator decides")
    page.get_by_role("button", name="Try the filter on stored messages").click()
    expect(page.locator("#trial")).to_contain_text("2 of the newest 3 messages match")
    expect(page.locator("#trial tr", has_text="does not match")).to_contain_text("country: “US”")
    page.select_option("#start", "earliest")
    page.get_by_role("button", name="Ask for it").click()
    page.get_by_role("button", name="Try it on stored messages").click()
    expect(page.locator("#trial")).to_contain_text("2 of the newest 3 messages match")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#applied")).to_contain_text("processes have applied it")
    expect(page.locator("#applied .check.good")).to_be_visible()
    options = ("--group", "billing", "--max", "10", "-o", "json", "--data", str(penstock.data))
    credential = ("--app", shop.app, "--key-id", shop.key_id)
    done = subprocess.run(
        [*PENSTOCK, "pull", "orders", *options, *credential], capture_output=True, text=True, timeout=30, check=True,
        env={**os.environ, "PENSTOCK_SECRET": shop.secret},
    )  # fmt: skip
    bodies = sorted(json.loads(line)["body"] for line in done.stdout.splitlines())
    assert bodies == ["to DE", "to DE"]


def test_connected_clients_are_on_the_pages_and_an_operator_closes_one_by_page_and_by_command(ada, penstock):
    shop = penstock.application("mailing", send=["orders"], pull=["*"])
    credential = Credential(**mint(shop.app, shop.key_id, shop.secret, int(time.time() * 1000))._asdict())
    with ProxyLink("send", penstock.producer) as sends, ProxyLink("pull", penstock.consumer) as pulls:
        message = Message(topic="orders", body=b"for the list")
        for _ in range(2):  # the second call of a connection takes the hot path
            assert sends.call(SendRequest(credential=credential, messages=[message]), 5).results[0].code == 0
        asked = PullRequest(credential=credential, group="readers", topics=["orders"])
        assert pulls.call(asked, 5).code == 0
        rows = penstock.run("connections", "list", "--application", "mailing")
        kinds = {row["process"].partition("@")[0]: row for row in rows}
        assert kinds.keys() == {"producer_proxy", "consumer_proxy"}
        reader, sender = kinds["consumer_proxy"], kinds["producer_proxy"]
        assert (reader["group"], reader["topics"], sender["group"]) == ("readers", ["orders"], "")
        assert penstock.run("connections", "list", "--group", "readers")[0]["id"] == reader["id"]
        page = ada.page
        for path, count in (("/topics/orders", 2), ("/groups/readers", 1), ("/applications/mailing", 2)):
            page.goto(path)
            expect(page.locator("#clients tbody tr", has_text="mailing")).to_have_count(count)
        page.get_by_role("link", name=f"Close the connection of {reader['peer']}").click()
        expect(page.get_by_role("button", name="Close the connection")).to_be_visible()
        assert serious_findings(page) == []
        expect(page.get_by_role("heading", name=reader["peer"])).to_be_visible()
        page.get_by_role("button", name="Close the connection").click()
        expect(page.get_by_text("The connection is closed.")).to_be_visible()
        with pytest.raises(ProxyUnreachable):
            pulls.call(asked, 5)
        assert penstock.run("connections", "close", sender["id"])["application"] == "mailing"
        assert penstock.call("connections", "close", sender["id"]).returncode == 3
        with pytest.raises(ProxyUnreachable):
            sends.call(SendRequest(credential=credential, messages=[message]), 5)
    assert penstock.run("connections", "list", "--application", "mailing") == []
    closed = [each for each in penstock.run("audit", "--kind", "connection") if each["action"] == "close"]
    assert [each["who"].partition(":")[0] for each in closed] == ["cli", "console"]


def test_a_switch_of_the_master_is_seen_on_a_map_that_is_open(ada, penstock):
    roles = {each["broker"]: each["role"] for each in until(lambda: in_sync(penstock), "two brokers are in sync", 30)}
    old = next(name for name, role in roles.items() if role == "master")
    new = next(name for name, role in roles.items() if role == "in sync")
    watcher = ada.page.context.new_page()
    watcher.goto("/map")
    row = watcher.locator("#live li")
    expect(row.filter(has_text=re.compile(rf"^{old}\s*master"))).to_be_visible()
    page = ada.page
    page.goto("/map")
    page.get_by_role("link", name="main").focus()
    for _ in range(2):  # with the second answer the part of the first one is in place
        with page.expect_response(lambda answer: answer.url.endswith("/map/live")):
            page.evaluate("document.querySelector('#live').dispatchEvent(new CustomEvent('changed'))")
    assert page.evaluate("document.activeElement.textContent") == "main"
    page.get_by_role("link", name="main").click()
    expect(page.get_by_text(f"Broker {old} finishes its work")).to_be_visible()
    page.get_by_role("button", name="Switch the master").click()
    expect(page.get_by_text("The master was switched")).to_be_visible()
    expect(row.filter(has_text=re.compile(rf"^{new}\s*master"))).to_be_visible()
    expect(page.get_by_text(f"switched by an operator from broker {old} to {new}").first).to_be_visible()
    assert penstock.call("send", "orders", "after the switch", "-q").returncode == 0
    watcher.close()


def in_sync(penstock) -> list[dict]:
    rows = penstock.run("broker", "list")
    return rows if sorted(each["role"] for each in rows) == ["in sync", "master"] else []


def test_limits_are_applied_by_all_processes_while_the_page_is_open(ada, penstock):
    page = ada.page
    page.goto("/limits")
    page.fill("#rate_messages", "40000")
    page.get_by_label("low", exact=True).check()
    page.get_by_role("button", name="Change the limits").click()
    expect(page.locator("#applied .check.good")).to_be_visible()
    shown = penstock.run("gate", "show")
    assert (shown["rate_messages"], shown["grades_off"]) == (40_000, ["low"])


def test_a_migration_is_followed_on_its_page_and_its_commands_are_the_real_ones(ada, penstock):
    """Its cluster is not in the configuration, so `start` ends in the middle, as after an outage, and is aborted."""
    store = open_store(penstock.facts["config"])
    plans = PlanStore(store, SystemClock(), "cli:ann@desk")
    page = ada.page
    page.goto("/migrations")
    expect(page.get_by_role("heading", name="There is no plan")).to_be_visible()
    plans.add(parse_plan(TEXT, "plan"))
    page.goto("/migrations/shop")
    expect(page.locator("#live")).to_contain_text("an operator: start is next")
    page.get_by_role("link", name="start", exact=True).click()
    expect(page.get_by_role("row", name="copy in")).to_be_visible()
    page.get_by_role("button", name="Begin start").click()
    lines, events = page.locator("#live pre"), page.locator("#live .events li")
    expect(lines).to_contain_text("ada: penstock migrate start shop")
    expect(lines).to_contain_text('kafka "main": not found', timeout=LINES_MS)
    expect(page.get_by_role("link", name="resume")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("At work: start, sub-step")
    expect(events.first).to_contain_text("start begun")
    assert plans.read("shop").operator.startswith("console:ada on ")
    page.get_by_role("link", name="abort").click()
    page.get_by_role("button", name="Begin abort").click()
    expect(events.first).to_contain_text("now aborted", timeout=LINES_MS)
    expect(page.get_by_role("link", name="resume")).to_have_count(0)
    assert str(plans.read("shop").state.step) == "aborted"
    entry = plans.add(parse_plan(TEXT, "plan"))
    plans.write(entry, replace(entry.state, step=PlanStep.COPYING), "now copying")
    expect(events.first).to_contain_text("now copying")
    expect(page.get_by_role("link", name="verify", exact=True)).to_be_visible()
    store.close()
