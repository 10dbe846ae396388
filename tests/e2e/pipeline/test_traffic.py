"""The report on traffic of real topics: its figures, its page in a browser, what the console tells and gets, and the
same from an archive."""

import json
import time

import pytest
from click.testing import CliRunner
from penstock_client import Message

from common import contract
from penstock.commands.pipeline.group import command
from pipeline.archive.archive import plan_archive, run_archive
from tests.e2e.console.api_caller import ApiCaller
from tests.e2e.kafka.home import Sender
from tests.services.chromium import chromium
from tests.waiting import until

MESSAGES = 300


@pytest.fixture(scope="module")
def penstock_up(penstock_factory):
    return penstock_factory(environment={"PENSTOCK_CONSOLE": "1"})


@pytest.fixture(scope="module")
def stored(penstock_up, producer):
    penstock_up.run("topic", "create", "orders", "payments", "nothing", "--queues", "2", "--retention-mib", "1")
    now_ms = int(time.time() * 1000)
    orders = [  # a stock client, which sets no ids: the proxy assigns them
        contract.Message(
            topic="orders", key=f"<k{min(number % 10, 3)}>", body=b"x" * 50, properties={"shop": f"s{number % 2}"}
        )
        for number in range(MESSAGES)
    ]
    payments = [
        Message(topic="payments", id=f"p-{number}", body=b"y" * 10, properties={"sent": str(now_ms - 1000 * number)})
        for number in range(20)
    ]
    sender = Sender(penstock_up, penstock_up.application("shop", send=["orders"]))
    assert {result.code for result in sender.send(*orders)} == {0}
    assert all(result.ok for result in producer.send_all(payments))
    yield sender
    sender.close()


@pytest.fixture
def console(penstock_up, stored):
    """The console's API, whose history knows that application `shop` was refused at topic `payments`."""
    caller = ApiCaller(penstock_up)

    def is_told():
        assert {result.code for result in stored.send(contract.Message(topic="payments", body=b"x"))} == {105}
        return caller.call("/api/v1/refused?topic=payments")[1]["refused"]

    until(is_told, "the console has looked at the proxy twice", 60)
    yield caller
    caller.close()


def run(*arguments):
    done = CliRunner().invoke(command, ["traffic", *map(str, arguments), "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_report_has_the_figures_of_all_topics_and_opens_in_a_browser(
    spark, penstock_up, options, stored, console, tmp_path
):
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(console.token)
    where, report, limits = options(), tmp_path / "report", tmp_path / "topics.json"
    limits.write_text(json.dumps(penstock_up.run("topic", "list")))
    proxies = ("--endpoint", where["endpoint"], "--credential", where["credential"], "--report", report)
    assert run("orders", "payments", "nothing", *proxies, "--dry-run") == {"dry_run": True, "messages": MESSAGES + 20}
    assert not report.exists()
    summary = run(
        "orders",
        "payments",
        "nothing",
        *proxies,
        "--application-property",
        "shop",
        "--topics-file",
        limits,
        "--free-gib",
        1,
        *("--console", console.url, "--console-token", token, "--feed"),
    )
    assert (summary["topics"], summary["messages"]) == (2, MESSAGES + 20)
    assert summary["refused"] >= 1
    assert summary["minutes_fed"] >= 2
    check_figures(json.loads((report / "traffic.json").read_text()))
    check_page(report / "traffic.html")

    def is_in_the_history():
        _, history = console.call("/api/v1/history?subject=topic:orders&names=stored&range=1h")
        return round(sum(value * history["step_s"] for value in history["values"][0] if value)) == MESSAGES

    until(is_in_the_history, "the whole minute of the messages, which may not be over yet", 70)


def check_figures(found):
    orders, payments = found["topics"]
    assert (orders["topic"], orders["messages"], orders["size_bytes"], orders["keys"]) == (
        "orders",
        MESSAGES,
        50 * MESSAGES,
        4,
    )
    assert (orders["timed"], payments["timed"], found["empty"]) == (MESSAGES, 0, ["nothing"])
    assert 0 <= orders["p50_ms"] <= orders["p99_ms"] <= orders["max_ms"] < 30_000
    assert orders["top_keys"][0] == {"name": "<k3>", "messages": MESSAGES * 7 // 10}
    assert sorted(each["name"] for each in orders["applications"]) == ["s0", "s1"]
    assert (
        sum(step["messages"] for step in orders["steps"])
        == sum(each["messages"] for each in orders["queues"])
        == MESSAGES
    )
    assert payments["keyless"] == 20
    assert list(found["refused"]) == ["payments"]
    assert {(row["application"], row["name"]) for row in found["refused"]["payments"]} == {
        (None, "FORBIDDEN"), ("shop", "FORBIDDEN"),
    }  # fmt: skip


def check_page(path):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 800})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert page.locator("svg").count() == 10
        assert page.locator("td", has_text="FORBIDDEN (105)").count() == 1
        assert page.locator("svg text", has_text="<k3>").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert len(asked) == 1


def test_a_property_tells_the_time_of_sending_and_an_archive_gives_the_same_figures(spark, options, stored, tmp_path):
    url, chosen = str(tmp_path / "archive"), options(topics="orders,payments")
    run_archive(spark, chosen, url, plan_archive(chosen, url))
    assert (
        run("--archive", url, "--report", tmp_path / "report", "--sent-property", "sent")["messages"] == MESSAGES + 20
    )
    orders, payments = json.loads((tmp_path / "report" / "traffic.json").read_text())["topics"]
    assert (orders["timed"], orders["messages"], orders["p50_ms"]) == (0, MESSAGES, None)
    assert payments["timed"] == 20
    assert payments["max_ms"] >= 19_000
    assert 8_000 <= payments["max_ms"] - payments["p50_ms"] <= 11_000
