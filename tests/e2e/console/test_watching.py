"""Watching in Chromium against a real Penstock: charts, an alert that fires and reaches a webhook, the API, the commands."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from playwright.sync_api import expect

from tests.e2e.console.axe import serious_findings
from tests.e2e.running import RunningPenstock
from tests.waiting import until

PASSWORD = "a long password"
SAMPLES_S_MAX = 60.0


@pytest.fixture(scope="module")
def page(browser, penstock: RunningPenstock):
    """The administrator's window, after messages were sent and a group has fallen behind."""
    link = until(lambda: re.search(r"^Console: (\S+)", penstock.told(), re.M), "the address")[1]
    context = browser.new_context(base_url=link.partition("/link/")[0], viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.goto(link)
    assert serious_findings(opened) == []
    for name, value in {"name": "ada", "password": PASSWORD, "again": PASSWORD}.items():
        opened.fill(f"#{name}", value)
    opened.locator("button.main").click()
    penstock.run("topic", "create", "orders")
    lines = "\n".join(f'{{"order": {number}}}' for number in range(50)).encode()
    assert penstock.call("send", "--topic", "orders", "--lines", "-q", data=lines).returncode == 0
    assert penstock.call("pull", "orders", "--group", "billing", "--max", "10").returncode == 0
    yield opened
    assert faults == []
    context.close()


def test_the_palette_goes_to_a_name_by_keys_alone(page):
    page.goto("/map")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search all names")).to_be_visible()
    page.keyboard.type("ORD")
    expect(page.get_by_role("option", name="orders")).to_have_attribute("aria-selected", "true")
    assert serious_findings(page) == []
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    page.get_by_role("link", name="Search Ctrl K").click()
    page.keyboard.type("nothing like it")
    expect(page.locator("#palette-hits")).to_contain_text("Nothing has nothing like it in its name")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def points(page, subject: str, name: str) -> list[float]:
    """The measured points of a figure."""
    answer = page.request.get(f"/charts?subject={subject}&names={name}&range=15m").json()
    return [value for value in answer["values"][0] if value is not None]


def test_lag_is_sampled_from_the_engine_and_drawn(page, penstock):
    until(lambda: 40 in points(page, "group:billing", "lag"), "the lag is sampled", SAMPLES_S_MAX)
    penstock.run("topic", "create", "small", "--body-bytes-max", "10")
    assert penstock.call("send", "small", "1234567890 and more").returncode != 0
    assert penstock.call("send", "small", "short").returncode == 0
    until(lambda: any(value > 0 for value in points(page, "group:billing", "lag_s")), "in seconds", SAMPLES_S_MAX)
    page.goto("/groups/billing?range=15m")
    expect(page.locator(".plot canvas")).to_have_count(3)
    page.get_by_text("In words").nth(1).click()
    expect(page.locator(".chart").nth(1)).to_contain_text("40 messages at the end")
    page.goto("/map?range=15m")
    expect(page.locator(".chart", has_text="Free on the disk of main").locator("canvas")).to_be_visible()
    assert points(page, "all", "in"), "the pages of metrics are read"
    until(lambda: points(page, "topic:small", "send_p99"), "the proxy has told the topic's times", SAMPLES_S_MAX)
    page.goto("/topics/small?range=15m")
    expect(page.locator("#refused")).to_contain_text("TOO_LARGE 101")
    expect(page.locator(".chart", has_text="Time to confirm a send").locator("canvas")).to_be_visible()


def test_an_alert_fires_on_a_real_lag_and_the_policy_against_private_addresses_holds(page):
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.goto("/channels")
    page.fill("#name", "Operations")
    page.fill("#target", f"http://127.0.0.1:{server.server_port}/hook")
    page.get_by_role("button", name="Add the channel").click()
    expect(page.locator("code.once")).to_be_visible()
    page.goto("/alerts")
    row = page.locator("tr", has_text="Age of the oldest message that a group")
    row.get_by_text("Change").click()
    row.locator("#threshold-lag").fill("1")
    row.locator("#hold-lag").fill("0")
    row.get_by_role("button", name="Save").click()
    firing = page.locator("tr", has_text="Group billing is").locator(".firing")

    def fires() -> bool:
        page.goto("/alerts")
        return firing.count() == 1

    until(fires, "the alert fires", SAMPLES_S_MAX)
    page.goto("/")
    expect(page.get_by_text("1 alert:")).to_be_visible()

    def refused() -> bool:
        page.goto("/channels")
        return page.get_by_text("webhooks go to public addresses").count() > 0

    until(refused, "the notice is tried and refused", SAMPLES_S_MAX)
    server.shutdown()
    server.server_close()
    assert got == []


def test_a_token_of_the_page_reads_and_applies_and_the_command_agrees(page, penstock, tmp_path):
    page.goto("/api")
    page.get_by_text("Make a token").click()
    page.fill("#name", "deploy")
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Make it").click()
    headers = {"Authorization": f"Bearer {page.locator('code.once').inner_text()}"}
    program = page.context.browser.new_context(base_url=page.url.partition("/api")[0], extra_http_headers=headers)
    declared = {"topics": {"payments": {"queues": 4, "durability": "fsync"}}}
    assert program.request.post("/api/v1/apply", data={"declared": declared}).json()["applied"] is True
    assert program.request.get("/api/v1/topics/payments").json()["settings"]["queues"] == 4
    assert program.request.get("/api/v1/groups/billing").json()["lag"] == 40
    program.close()
    file = tmp_path / "topics.yaml"
    file.write_bytes(penstock.call("export").stdout)
    assert yaml.safe_load(file.read_text())["topics"]["payments"] == declared["topics"]["payments"]
    assert penstock.call("apply", "-f", str(file), "--dry-run").returncode == 0
