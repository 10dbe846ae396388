"""`penstock proxy drain`: a real `up` and a second proxy of each kind, under load by clients that know both."""

import json
import signal
import subprocess
import threading
import time

import pytest
from penstock_client import Consumer, Message, Options, Producer
from penstock_client.metrics import Metrics

from common.admin.connections import list_connections
from common.admin.proxies import list_proxies
from common.config import open_store
from common.contract import Code
from tests.e2e.pull_parts import Process
from tests.e2e.running import PENSTOCK
from tests.waiting import until

SENDERS, CONSUMERS = 3, 2


class Failures(Metrics):
    """Calls without an answer: a drained proxy answers every call."""

    def __init__(self):
        self.found = []

    def call(self, method, endpoint, took_s, failure):
        if failure is not None:
            self.found.append((method, endpoint, failure))


class Site:
    """`up` and two more proxies, which are on its engine."""

    def __init__(self, up, folder):
        self.up = up
        engine, facts = f"{up.engine[0]}:{up.engine[1]}", up.facts
        common = ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--engine", engine, "--config", facts["config"]]
        common += ["--cluster-key", facts["cluster_key"], "--secrets-key", facts["secrets_key"]]
        buffer = ["--buffer", folder / "buffer", "--journal", folder / "journal"]
        self.more = [Process("producer_proxy", *common, *buffer), Process("consumer_proxy", *common)]
        self.producers = [up.producer, ("127.0.0.1", self.more[0].port)]
        self.consumers = [up.consumer, ("127.0.0.1", self.more[1].port)]
        up.run("topic", "create", "orders", "--queues", "4", "--durability", "memory")
        up.run("topic", "create", "kept", "--durability", "memory", "--buffer", "disk")
        up.run("topic", "create", "asked", "--durability", "memory")
        self.shop = up.application("shop", send=["*"], pull=["*"])
        self.store = open_store(up.facts["config"])
        self.failures = Failures()
        self.options = Options(metrics=self.failures)

    def producer(self, *places):
        return Producer(list(places or self.producers), *self.shop, options=self.options)

    def consumer(self, topic, *places):
        return Consumer(list(places or self.consumers), *self.shop, "readers", [topic], options=self.options)

    def state(self, place):
        return next(each for each in list_proxies(self.store) if each.address == address(place))

    def close(self):
        self.store.close()
        for each in self.more:
            each.kill()


class Load:
    """Threads that send and consume until the end; a failure is kept for the test."""

    def __init__(self, site):
        self._site, self._stop, self.faults = site, threading.Event(), []
        self.sent, self.slowest_s, self.got, self._lock = set(), 0.0, [], threading.Lock()
        self._senders = [threading.Thread(target=self._run, args=(self._send, number)) for number in range(SENDERS)]
        self._consumers = [threading.Thread(target=self._run, args=(self._consume, 0)) for _ in range(CONSUMERS)]
        self._sending = threading.Event()
        for each in self._senders + self._consumers:
            each.start()

    def _run(self, work, number):
        try:
            work(number)
        except Exception as error:
            self.faults.append(error)

    def _send(self, number):
        with self._site.producer() as producer:
            count = 0
            while not self._sending.wait(0.005):  # a pace, not a wait for anything
                body, began = f"{number}-{count}".encode(), time.monotonic()
                producer.send(Message("orders", body=body, key=str(count % 7)))
                with self._lock:
                    self.sent.add(body)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                count += 1

    def _consume(self, _):
        with self._site.consumer("orders") as consumer:
            consumer.run(lambda delivery: self.got.append((delivery.message.body, delivery.attempt)), self._stop)

    def goes_on(self):
        """Wait until more has been sent and consumed than now."""
        sent, got = len(self.sent) + 50, len(self.got) + 50
        until(lambda: self.faults or (len(self.sent) > sent and len(self.got) > got), "the load goes on")

    def end(self):
        self._sending.set()
        for each in self._senders:
            each.join(20)
        until(lambda: self.faults or len({body for body, _ in self.got}) >= len(self.sent), "all is consumed")
        self._stop.set()
        for each in self._consumers:
            each.join(20)


def address(place):
    return f"{place[0]}:{place[1]}"


@pytest.fixture(scope="module")
def site(penstock_up, tmp_path_factory):
    made = Site(penstock_up, tmp_path_factory.mktemp("more"))
    yield made
    made.close()


def test_clients_with_two_proxies_see_no_error_while_each_proxy_is_drained_and_put_back(site):
    load, up = Load(site), site.up
    try:
        load.goes_on()
        for place in [*site.producers, *site.consumers]:
            drained = up.run("proxy", "drain", address(place))
            assert address(place) in drained["drained"]
            assert (site.state(place).state, site.state(place).calls) == ("drained", 0)
            load.goes_on()
            until(lambda place=place: site.state(place).passed_on > 0, "clients call there, and are sent on")
            assert up.run("proxy", "undrain", address(place))["serving"] == drained["drained"]
            assert site.state(place).state == "serving"
        load.goes_on()
    finally:
        load.end()
    assert load.faults == [] and site.failures.found == []
    assert {body for body, _ in load.got} == load.sent and len(load.got) == len(load.sent)  # nothing twice
    assert {attempt for _, attempt in load.got} == {1}
    print(f"sent {len(load.sent)}, the slowest in {load.slowest_s * 1000:.0f} ms")
    actions = [(each["action"], each["kind"]) for each in up.run("audit", "--limit", "20")]
    assert actions.count(("drain", "proxy")) == actions.count(("undrain", "proxy")) == 4


def test_a_drain_answers_a_long_poll_at_once(site):
    place, answers = site.consumers[1], []
    with site.consumer("kept", place) as consumer:
        polling = threading.Thread(target=lambda: answers.append(consumer.pull(wait_ms=30_000)))
        polling.start()
        until(
            lambda: any(row.is_waiting for row in list_connections(site.store, {"topic": "kept"}, 9).rows), "it waits"
        )
        began = time.monotonic()
        site.up.run("proxy", "drain", address(place))
        polling.join(20)
        assert answers == [[]] and time.monotonic() - began < 25
    site.up.run("proxy", "undrain", address(place))


def test_a_drain_waits_for_a_request_that_waits_for_its_reply(site):
    first, second = site.producers
    answers = []
    with site.producer(first) as asking, site.producer(second) as replying, site.consumer("asked") as consumer:
        asker = threading.Thread(
            target=lambda: answers.append(asking.request(Message("asked", body=b"?"), wait_ms=50_000))
        )
        asker.start()
        (delivery,) = until(lambda: consumer.pull(wait_ms=1_000), "the request comes")
        command = [*PENSTOCK, "proxy", "drain", address(first), "-o", "json", "--data", str(site.up.data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as draining:
            until(lambda: site.state(first).state == "draining", "the drain has begun", 30)
            assert site.state(first).calls == 1 and draining.poll() is None
            assert replying.reply(delivery, b"!").code == Code.OK
            told = json.loads(draining.communicate(timeout=60)[0])
        asker.join(10)
        consumer.done(delivery)
    assert answers[0].body == b"!" and draining.returncode == 0 and told["after"]
    site.up.run("proxy", "undrain", address(first))


def test_what_a_fallback_buffer_keeps_is_named_until_the_engine_has_it(site):
    up, place = site.up, site.producers[1]
    with site.producer(place) as producer:
        assert producer.send(Message("kept", body=b"0")).code == Code.OK
        up.kill("engine", signal.SIGSTOP)
        try:
            assert producer.send(Message("kept", body=b"1")).code == Code.BUFFERED
            late = up.call("proxy", "drain", address(place), "--wait", "500ms")
        finally:
            up.kill("engine", signal.SIGCONT)
    assert late.returncode == 5 and b"1 messages" in late.stderr and b"fallback buffer" in late.stderr
    assert up.run("proxy", "drain", address(place))["drained"]
    assert site.state(place).left == {"buffered": 0, "buffered_bytes": 0, "repairs": 0}
    status, ready = site.more[0].page("/readyz")
    assert status == 503 and "drained by an operator" in ready
    up.run("proxy", "undrain", address(place))
    until(lambda: site.more[0].page("/readyz")[0] == 200, "it is ready again")


def test_the_last_proxy_of_its_kind_is_drained_only_on_purpose_and_names_are_checked(site):
    up, (first, second) = site.up, site.consumers
    up.run("proxy", "drain", address(first))
    refused = up.call("proxy", "drain", address(second))
    assert refused.returncode == 4 and b"--last" in refused.stderr and site.state(second).state == "serving"
    up.run("proxy", "undrain", address(first))
    assert [row["state"] for row in up.run("proxy", "list")] == ["serving"] * 4
    unknown = up.call("proxy", "drain", "127.0.0.1:1")
    assert unknown.returncode == 3 and b"use one of" in unknown.stderr
    several = up.call("proxy", "drain", "consumer-proxy")
    assert several.returncode == 2 and b"several are meant" in several.stderr
