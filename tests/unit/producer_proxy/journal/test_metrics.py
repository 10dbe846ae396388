"""The journal's metrics and options: what a proxy shows of its dual writes, and what it does not start with."""

import argparse
import re

import gevent
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from common.contract import Code
from producer_proxy.journal import metrics
from producer_proxy.journal.journaling import Journaling
from producer_proxy.journal.metrics import JournalMetrics
from producer_proxy.journal.options import make_journaling, options_of_journal
from tests.unit.producer_proxy.journal.side import DualDesk


def shown(journaling):
    registry = CollectorRegistry()
    registry.register(JournalMetrics(journaling))
    lines = generate_latest(registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


@pytest.fixture
def desk(tmp_path):
    made = DualDesk(tmp_path / "journal")
    yield made
    made.stop()


def test_each_metric_is_in_the_table_and_each_row_is_a_metric(desk):
    desk.topics.find(["t"])
    rows = set(re.findall(r"^\| (penstock_\w+)", metrics.__doc__, re.M))
    assert {name.partition("{")[0] for name in shown(desk.journaling)} == rows


def test_what_the_secondary_lacks_and_what_it_got_later_is_counted(desk):
    desk.secondary.code = Code.UNAVAILABLE
    desk.send(3)
    with gevent.Timeout(20, AssertionError("no backlog")):
        while desk.journaling.backlog.count < 3:
            gevent.sleep(0.005)  # for the journal's greenlets
    assert shown(desk.journaling)["penstock_journal_diverging"] == 3
    desk.secondary.code = None
    with gevent.Timeout(20, AssertionError("no repair")):
        while desk.journaling.backlog.count:
            gevent.sleep(0.005)  # for the journal's greenlets
    found = shown(desk.journaling)
    assert found["penstock_journal_diverging"] == 0 and found["penstock_journal_working"] == 1
    assert found['penstock_dual_repaired_total{secondary="kafka:main"}'] == 3


def test_a_proxy_without_journal_and_without_such_topics_shows_nothing():
    assert shown(Journaling(None, lambda: 0)) == {}


def options(*arguments):
    parser = argparse.ArgumentParser()
    options_of_journal(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("mib", ["31", "0", "16777217"])
def test_a_bound_out_of_range_is_refused_by_name(mib, tmp_path):
    with pytest.raises(ValueError, match="--journal-mib-max: from 32 to 16777216"):
        make_journaling(options("--journal", str(tmp_path / "journal"), "--journal-mib-max", mib))
    assert not (tmp_path / "journal").exists()


def test_the_options_open_a_journal_or_none(tmp_path):
    assert make_journaling(options()).journal is None
    made = make_journaling(options("--journal", str(tmp_path / "journal")))
    assert made.journal is not None and (tmp_path / "journal" / "lock").exists()
    made.stop()
