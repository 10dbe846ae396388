"""A whole move from a real Kafka to the engine, begun and followed on its page: `make test ARGS="-m slow tests/e2e/console"`."""

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect

from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from tests.e2e.console.test_first_topic import Person
from tests.e2e.running import RunningPenstock
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

TEXT = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\nlimits: {fence_s: 60, soak_hours: 0}\n"
STEP_MS = 90_000
RECORDS = 20


@pytest.fixture
def penstock(tmp_path):
    """A Penstock with its console that knows a Kafka cluster with topic orders."""
    with KafkaBrokers(tmp_path / "kafka") as brokers:
        with closing(open_driver().admin(KafkaConnection("main", (brokers.bootstrap,)))) as admin:
            wanted = NewKafkaTopic(3, 1, {"min.insync.replicas": "2"})
            assert admin.create_topics({"orders": NewKafkaTopic(3, 1), "clicks": wanted}) == {}
            until(lambda: len(admin.topics(["orders", "clicks"])) == 2, "the topics", 30.0)
        made = RunningPenstock(tmp_path / "data", environment={"PENSTOCK_CONSOLE": "1"})
        (tmp_path / "data" / "config").mkdir(
            parents=True
        )  # without a running Penstock: the configuration is a directory
        made.run("kafka", "add", "main", "--bootstrap", brokers.bootstrap)
        made.start()
        (tmp_path / "plan.yaml").write_text(TEXT)
        made.run("migrate", "plan", str(tmp_path / "plan.yaml"), "--accept", "lone-replica")
        yield made
        made.end()


def begin(page, command: str, reached: str) -> None:
    """Begin a command on the plan's page, and follow it there, without loading the page anew, until its end."""
    page.get_by_role("link", name=command, exact=True).click()
    page.get_by_role("button", name=f"Begin {command}").click()
    expect(page.locator("#live .events li").first).to_contain_text(reached, timeout=STEP_MS)


@pytest.mark.slow
def test_topics_move_from_kafka_to_the_engine_by_the_buttons_of_the_page(browser, penstock):
    found = until(
        lambda: re.search(r"^Console: (http://\S+/link/\S+)\nPenstock serves", penstock.told(), re.M), "the address"
    )
    ada = Person(browser, found[1].partition("/link/")[0])
    ada.open_link(found[1], name="ada")
    page = ada.page
    page.goto("/migrations/shop")
    begin(page, "start", "now copying")
    lines = "\n".join(f'{{"order": {number}}}' for number in range(RECORDS)).encode()
    assert penstock.call("send", "--topic", "orders", "--lines", "-q", data=lines).returncode == 0
    expect(page.get_by_role("row", name="orders")).to_contain_text("into the engine")
    begin(page, "verify", "compared")
    expect(page.get_by_text("0 ids differ").first).to_be_visible()
    begin(page, "cut", "now cut")
    expect(page.get_by_role("link", name="soak", exact=True)).to_be_visible()  # the page is loaded anew before
    expect(page.get_by_role("row", name="orders").first).to_contain_text("engine")
    page.get_by_role("link", name="Ask Kafka and the engines").click()
    expect(page.locator("#positions-now")).to_contain_text("an operator: soak is next", timeout=STEP_MS)
    expect(page.locator("#positions-now").get_by_role("row", name="orders")).to_contain_text(str(RECORDS))
    begin(page, "soak", "now soaking")
    begin(page, "retire", "now retired")
    expect(page.get_by_role("link", name="rollback", exact=True)).to_have_count(0)
    page.goto("/audit?q=migrate")
    expect(page.get_by_role("row", name="migrate cut")).to_contain_text("ada")
    ada.close()


@pytest.mark.slow
def test_a_topic_is_asked_for_in_a_kafka_cluster_and_gets_a_queue_per_partition(browser, penstock):
    found = until(
        lambda: re.search(r"^Console: (http://\S+/link/\S+)\nPenstock serves", penstock.told(), re.M), "the address"
    )
    ada = Person(browser, found[1].partition("/link/")[0])
    ada.open_link(found[1], name="ada")
    page = ada.page
    page.goto("/people")
    page.locator("#team").fill("shop")
    page.get_by_role("button", name="Add the team").click()
    for name, words in (("clicks", "partitions"), ("nowhere", "create it there")):
        page.goto(f"/requests/new?name={name}")
        page.locator("#description").fill("Clicks")
        page.locator("#team").select_option("shop")
        page.locator("#home").select_option("kafka:main")
        expect(page.locator("#preview")).to_contain_text("one per partition in Kafka")
        page.get_by_role("button", name="Ask for it").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("main")).to_contain_text(words, timeout=STEP_MS)
    assert "'kafka:main'" in str(shown := penstock.run("topic", "show", "clicks")) and "'queues': 3" in str(shown)
    (told,) = ada.faults  # the browser's word for the page that says that the second one is not applied
    assert "503" in told
    ada.faults.clear()
    ada.close()
