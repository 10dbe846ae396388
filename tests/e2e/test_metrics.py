"""The pages of metrics of running processes are what the reference says, and what Prometheus accepts."""

import re
import shutil
import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.contract import Code
from penstock.metrics_reference import sections
from producer_proxy.hot.native import NATIVE
from tests.e2e.running import RunningPenstock
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.services import require
from tests.waiting import until

OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
KEPT_BY_FEATURES = ("Dual writes of a producer proxy", "Kafka bridge", "Traces of both proxies")
"""Sections of features that this installation does not use."""


@pytest.fixture(scope="module")
def penstock(tmp_path_factory):
    """Two replicas with a fallback buffer; one message sent and pulled, one refused."""
    made = RunningPenstock(
        tmp_path_factory.mktemp("metrics") / "data", "--replicas", "2", "--no-console",
        environment={"PENSTOCK_ENGINE_METRICS_TOPICS": "shop.*", "PENSTOCK_ENGINE_METRICS_GROUPS": "1"},
    ).start()  # fmt: skip
    try:
        shop = made.application("shop", send=["*"], pull=["*"])
        made.run("topic", "create", "shop.orders", "--queues", "2")
        made.run("topic", "create", "other", "--queues", "1")
        made.run("topic", "set", "shop.orders", "--buffer", "disk")
        with Sender(made.producer, shop) as sender, Puller(made.consumer, shop) as puller:
            retry_until_served(lambda: sender.one("shop.orders", b"1").code == Code.OK, "it is stored")
            assert sender.one("nowhere", b"1").code == Code.UNKNOWN_TOPIC
            for group, topic in (("behind", "shop.orders"), ("done", "other")):
                until(lambda g=group, t=topic: puller.pull(g, t, wait_ms=0).code == Code.OK, "the group is there")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def pages(penstock):
    """The page of each process."""
    found = {}
    for name, port in penstock.facts["ops"].items():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found[name] = answer.read().decode()
    return found


def samples(page):
    return [each for family in text_string_to_metric_families(page) for each in family.samples]


def test_what_the_pages_have_is_in_the_reference_with_its_labels(pages):
    known = {row.name: row.labels.strip("{}") for rows in sections().values() for row in rows}
    found = {}
    for each in (each for page in pages.values() for each in samples(page)):
        name = each.name if each.name in known else OF_HISTOGRAM.sub("", each.name)
        if name.startswith("penstock_"):
            found[name] = ",".join(sorted(set(each.labels) - {"le"}))
    assert found == {name: known.get(name, "not in the reference") for name in found}


def test_what_the_reference_has_is_on_the_pages(pages):
    there = {each.name for page in pages.values() for each in samples(page)}
    families = {family.name for page in pages.values() for family in text_string_to_metric_families(page)}
    wanted = {row.name for title, rows in sections().items() if title not in KEPT_BY_FEATURES for row in rows}
    missing = {
        name for name in wanted if not {name, f"{name}_count"} & there and name.removesuffix("_total") not in families
    }
    unseen = {"penstock_certificate_left_seconds", "penstock_certificate_refused"}
    if not NATIVE:
        unseen |= {"penstock_producer_bytes_total", "penstock_producer_send_seconds"}  # of the hot path
    assert missing <= unseen, missing


def test_prometheus_accepts_the_pages_without_a_complaint(pages):
    require(shutil.which("promtool"), "promtool is missing: apt install prometheus")
    for name, page in pages.items():
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), name


def test_topics_that_the_operator_names_have_series_and_groups_as_many_as_the_operator_says(pages):
    of_engine = {
        (each.name, *each.labels.values()): each.value
        for name, page in pages.items() if name.startswith("engine")
        for each in samples(page)
    }  # fmt: skip
    assert of_engine["penstock_engine_topic_messages_total", "shop.orders"] == 1
    assert ("penstock_engine_topic_messages_total", "other") not in of_engine
    assert ("penstock_engine_group_lag_messages", "behind") in of_engine, "the group with the largest lag has a series"
    assert of_engine["penstock_engine_groups_left_out",] == 1
