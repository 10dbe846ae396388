"""The console over several broker groups with replicas: `make test ARGS="-m slow tests/e2e/console"`."""

import re

import pytest
from playwright.sync_api import expect

from tests.waiting import until

PASSWORD = "a long password"
KEYS = 12


@pytest.mark.slow
def test_queues_messages_lag_and_brokers_of_all_groups_are_shown(browser, penstock_factory):
    penstock = penstock_factory("--groups", "2", "--replicas", "2", environment={"PENSTOCK_CONSOLE": "1"})
    link = until(lambda: re.search(r"^Console: (\S+)", penstock.told(), re.M), "the address")[1]
    context = browser.new_context(base_url=link.partition("/link/")[0])
    page = context.new_page()
    page.goto(link)
    for field, value in {"name": "ada", "password": PASSWORD, "again": PASSWORD}.items():
        page.fill(f"#{field}", value)
    page.locator("button.main").click()
    penstock.run("topic", "create", "orders")
    for number in range(KEYS):
        assert penstock.call("send", "orders", f"body {number}", "--key", f"key {number}", "-q").returncode == 0
    assert penstock.call("pull", "orders", "--group", "readers", "--max", "2").returncode == 0
    page.goto("/topics/orders")
    expect(page.get_by_text(f"{KEYS} messages, about")).to_be_visible()
    expect(page.get_by_role("row", name="readers")).to_contain_text(str(KEYS - 2))
    assert {"group-1", "group-2"} <= set(page.locator("td:last-child").all_inner_texts())
    page.goto("/topics/orders/messages?by=time&from=2020-01-01T00:00")
    expect(page.get_by_text(f"{KEYS} messages")).to_be_visible()
    page.locator("tbody a").first.click()
    page.get_by_role("link", name="Trace").click()
    expect(page.locator("main")).to_contain_text(re.compile(r" and \S+ had it at most [\d,]+ ms after it was stored"))
    page.goto("/map")
    expect(page.locator(".broker")).to_have_count(4)
    assert sorted(page.locator(".broker .state").all_inner_texts()) == ["follows", "follows", "leads", "leads"]
    expect(page.get_by_role("row", name="group-1").first).to_contain_text("master")
    expect(page.get_by_text("Controller:")).to_be_visible()
    penstock.kill("engine-r2")
    page.goto("/map")
    expect(page.locator(".broker")).to_have_count(4)
    context.close()
