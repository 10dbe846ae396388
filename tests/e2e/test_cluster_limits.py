"""A limit of the whole cluster with three real producer proxies: skewed clients, a lender that dies, a change while it runs."""

import time
from contextlib import contextmanager

import pytest

from common.contract import Code
from tests.e2e.open_load import OpenLoad
from tests.e2e.pull_parts import Process
from tests.waiting import until

TOTAL = 400
SETTLED_S = 2.5  # the burst of a second is over and demand is known


@pytest.fixture(scope="module")
def site(penstock_up):
    """Where the three proxies listen: the one of `up` and two more."""
    facts = penstock_up.facts
    engine = f"{facts['engine']['host']}:{facts['engine']['port']}"
    options = ["--listen", "127.0.0.1:0", "--engine", engine, "--config", facts["config"]]
    more = [Process("producer_proxy", *options, "--cluster-key", facts["cluster_key"]) for _ in range(2)]
    yield [penstock_up.producer, *(("127.0.0.1", each.port) for each in more)]
    for each in more:
        assert each.stop() == 0


@pytest.fixture(scope="module")
def shop(penstock_up, site):
    penstock_up.run("topic", "create", "limited", "--rate-messages", str(TOTAL), "--durability", "memory")
    return penstock_up.application("shop", send=["limited"])


@contextmanager
def loads(site, shop, *rates):
    """Messages a second at each proxy."""
    running = [OpenLoad(at, shop, "limited", rate, burst=5) for at, rate in zip(site, rates, strict=True) if rate]
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def taken_a_second(running, seconds):
    def taken():
        return sum(each.counts[Code.OK] for each in running)

    before, began = taken(), time.monotonic()
    time.sleep(seconds)
    return (taken() - before) / (time.monotonic() - began)


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param((900, 60, 10), id="skewed"),
        pytest.param((1200, 0, 0), id="one", marks=pytest.mark.slow),
        pytest.param((400, 400, 400), id="even", marks=pytest.mark.slow),
    ],
)
def test_three_proxies_take_the_total_within_five_percent(site, shop, rates):
    with loads(site, shop, *rates) as running:
        time.sleep(SETTLED_S)
        assert taken_a_second(running, 4) == pytest.approx(TOTAL, rel=0.05)
        assert set().union(*(each.counts for each in running)) <= {Code.OK, Code.RATE_LIMITED}


def test_the_limit_holds_when_the_lender_is_killed_and_started_again(penstock_up, site, shop):
    with loads(site, shop, 1000, 100, 0) as running:
        time.sleep(SETTLED_S)
        pid = penstock_up.kill("engine")
        penstock_up.wait_replaced("engine", pid)
        taken = running[0].counts[Code.OK]
        until(lambda: running[0].counts[Code.OK] > taken, "sends go on", 20)
        assert taken_a_second(running, 2) <= TOTAL * 2  # a burst may come on top, never no limit
        time.sleep(SETTLED_S)
        assert taken_a_second(running, 4) == pytest.approx(TOTAL, rel=0.05)


def test_another_limit_is_at_work_within_a_second(penstock_up, site, shop):
    with loads(site, shop, 1000, 300, 0) as running:
        time.sleep(SETTLED_S)
        penstock_up.run("topic", "set", "limited", "--rate-messages", "100")
        time.sleep(1)
        assert taken_a_second(running, 3) == pytest.approx(100, rel=0.1)
        penstock_up.run("topic", "set", "limited", "--rate-messages", "0")
        time.sleep(0.3)
        assert taken_a_second(running, 1) > 900
        penstock_up.run("topic", "set", "limited", "--rate-messages", str(TOTAL))


def test_a_limit_is_shown_and_a_wrong_one_names_the_field(penstock_up, site, shop):
    assert penstock_up.run("topic", "show", "limited")["rate_messages"] == TOTAL
    wrong = penstock_up.call("topic", "set", "limited", "--rate-messages", "-1")
    assert wrong.returncode == 2
    assert b"--rate-messages" in wrong.stderr
