"""The story of the first topic, in Chromium against a real Penstock: the first start, a request, its approval, a client's
message, and that message found. The steps build on each other, so they are one test per person's view.
"""

import re
import subprocess
import time

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.running import RunningPenstock
from tests.services import thrift_toolchains
from tests.waiting import until

PASSWORD = "a long password"
SEND_S_MAX = 5.0
WAIT_MS = 15_000


class Person:
    """A browser window of one person, which fails the test at an error of a script or of the content policy."""

    def __init__(self, browser, url: str) -> None:
        self._context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800})
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._note)

    def _note(self, message) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.faults.append(message.text)

    def open_link(self, link: str, **fields: str) -> None:
        """Use a one-time link."""
        self.page.goto(link)
        for name, value in {**fields, "password": PASSWORD, "again": PASSWORD}.items():
            self.page.fill(f"#{name}", value)
        self.page.locator("button.main").click()
        expect(self.page.get_by_role("heading", name="Overview")).to_be_visible()

    def close(self) -> None:
        assert self.faults == []
        self._context.close()


@pytest.fixture(scope="module")
def link(penstock: RunningPenstock) -> str:
    pattern = re.compile(r"^Console: (http://\S+/link/\S+)\nPenstock serves", re.M)  # slow starts say more before
    return until(lambda: pattern.search(penstock.told()), "up says where the console is")[1]


@pytest.fixture(scope="module")
def ada(browser, link):
    person = Person(browser, link.partition("/link/")[0])
    person.open_link(link, name="ada")
    yield person
    person.close()


def test_the_first_line_of_up_makes_the_administrator_who_invites_an_owner(ada, browser, link):
    page = ada.page
    page.get_by_role("link", name="People").click()
    page.fill("#name", "olga")
    page.locator("form", has=page.locator("#role")).get_by_label("platform").check()
    page.get_by_role("button", name="Add, and show the link").click()
    invitation = page.locator("code.once").inner_text()
    olga = Person(browser, link.partition("/link/")[0])
    olga.open_link(invitation)
    expect(olga.page.get_by_role("link", name="Audit")).to_have_count(0)
    assert olga.page.goto("/people").status == 403
    olga.close()
    assert ada.page.goto(invitation).status == 410, "it works once"


def test_a_user_asks_an_operator_approves_a_client_sends_and_the_message_is_found(ada, browser, link, penstock):
    thrift_toolchains.build("php")
    shop = penstock.application("shop", send=["orders.*"], pull=["*"])
    olga = Person(browser, link.partition("/link/")[0])
    ada.page.goto("/people")
    ada.page.locator("tr", has_text="olga").get_by_text("Change").click()
    ada.page.locator("tr", has_text="olga").get_by_role("button", name="New one-time link").click()
    olga.open_link(ada.page.locator("code.once").inner_text())

    olga.page.get_by_role("link", name="Ask for a topic").click()
    olga.page.fill("#name", "orders created")
    expect(olga.page.locator("#preview")).to_contain_text("Invalid name")
    olga.page.fill("#name", "orders.created")
    olga.page.fill("#description", "Every order that is paid")
    expect(olga.page.locator("#preview")).to_contain_text("orders.created is free")
    expect(olga.page.locator("#preview")).to_contain_text("An operator decides")
    olga.page.get_by_role("button", name="Ask for it").click()
    expect(olga.page.get_by_role("heading", name="orders.created")).to_be_visible()

    ada.page.goto("/")
    ada.page.get_by_role("link", name="orders.created").first.click()
    ada.page.get_by_label("Reason").fill("Welcome")
    ada.page.get_by_role("button", name="Approve").click()
    approved = time.monotonic()
    sent = until(lambda: send(penstock, shop), "a producer in PHP sends", SEND_S_MAX)
    assert time.monotonic() - approved <= SEND_S_MAX
    expect(ada.page.locator("#applied")).to_contain_text("All 3 processes have applied it")

    assert penstock.call("pull", "orders.created", "--group", "readers", "--max", "1").returncode == 0
    olga.page.goto("/topics")
    olga.page.fill("#q", "CREATED")
    olga.page.get_by_role("link", name="orders.created").click()
    expect(olga.page.get_by_role("row", name="readers")).to_be_visible()
    olga.page.get_by_role("link", name="Messages", exact=True).click()
    olga.page.fill("#id", sent)
    olga.page.get_by_role("button", name="Find").first.click()
    olga.page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(olga.page.locator("pre")).to_contain_text('"order": 17')
    olga.page.get_by_role("link", name="hex").click()
    expect(olga.page.locator("pre")).to_contain_text("7b 22 6f 72 64 65 72 22")
    olga.page.get_by_role("link", name="Trace").click()
    expect(olga.page.get_by_role("row", name="readers").first).to_be_visible()
    olga.close()


def send(penstock: RunningPenstock, app) -> str:
    """Send in PHP as the application; the message's id, or "" while the proxy refuses."""
    host, port = penstock.producer
    options = ["--endpoints", f"{host}:{port}", "--app", app.app, "--key-id", app.key_id, "--topic", "orders.created"]
    done = subprocess.run(
        [*thrift_toolchains.program("php", "send"), *options, '{"order": 17}'],
        env=thrift_toolchains.environment(PENSTOCK_SECRET=app.secret), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.partition("\t")[0]


def test_a_test_message_is_text_whatever_is_in_it(ada):
    page = ada.page
    page.goto("/topics/orders.created/messages")
    page.fill("#body", '<script>document.title = "broken"</script>')
    page.get_by_role("button", name="Send").click()
    expect(page.locator("pre")).to_contain_text("<script>")
    assert "broken" not in page.title()


def test_everything_but_live_parts_works_without_script(browser, ada):
    context = browser.new_context(java_script_enabled=False, storage_state=ada._context.storage_state())
    page = context.new_page()
    base = ada.page.url.partition("/topics")[0]
    page.goto(f"{base}/topics?q=orders")
    page.get_by_role("link", name="orders.created").click()
    expect(page.get_by_role("heading", name="orders.created")).to_be_visible()
    page.goto(f"{base}/requests/new")
    page.fill("#name", "orders.created")
    page.fill("#description", "again")
    page.get_by_role("button", name="Ask for it").click()
    expect(page.get_by_text("Topic orders.created exists already.").first).to_be_visible()
    context.close()
