"""Pull end to end: a real engine, real consumer proxies, stock clients, and what happens when any of them dies."""

import shutil
import signal
import ssl
import subprocess
import threading
import time

import pytest

from common.contract import Ack, Code, Position, Verdict
from tests.e2e.pull_parts import Client, Site, cut
from tests.services import require
from tests.waiting import until


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxy(site):
    return site.proxy()


@pytest.fixture
def link(site):
    made = site.link()
    yield made
    made.close()


class InBackground:
    """One blocking call in a thread of its own."""

    def __init__(self, call, **fields):
        self.result, self.error = None, None
        self._thread = threading.Thread(target=self._run, args=(call, fields), daemon=True)
        self._thread.start()

    def _run(self, call, fields):
        try:
            self.result = call(**fields)
        except Exception as error:
            self.error = error
        self.ended_s = time.monotonic()

    def wait(self, deadline_s=20.0):
        self._thread.join(deadline_s)
        assert not self._thread.is_alive(), "the call did not return"
        return self.result


def parked(link, count):
    until(lambda: link.status()["parked_pulls"] == count, f"{count} parked pulls at the engine")


def drain(client, group, topic, wanted, acknowledge=True, **more):
    """Pull until `wanted` messages are there; returns the deliveries."""
    found, acks = [], []
    end = time.monotonic() + 15
    while len(found) < wanted:
        assert time.monotonic() < end, f"only {len(found)} of {wanted} messages came"
        response = client.pull(group=group, topics=[topic], wait_ms=500, max_messages=1000, acks=acks, **more)
        assert response.code == Code.OK, response.error
        assert all(result.code == Code.OK for result in response.ack_results)
        acks = [Ack(delivery.receipt) for delivery in response.deliveries] if acknowledge else []
        found += response.deliveries
    if acks:
        client.pull(group=group, topics=[topic], max_messages=0, acks=acks)
    return found


def bodies(deliveries):
    return [delivery.message.body for delivery in deliveries]


@pytest.mark.parametrize("transport", ["framed", "buffered"])
def test_stock_clients_pull_what_was_stored_and_acknowledge_it(site, proxy, link, transport):
    topic, client = f"stock-{transport}", site.client(proxy, transport)
    put_topic(site, topic)
    sent = [b"%d" % i * (i % 7) for i in range(2000)]
    for queue in range(4):
        link.append(topic, sent[queue * 500 : queue * 500 + 500], queue)
    found = drain(client, "g-" + transport, topic, 2000)
    by_queue = {queue: [d for d in found if d.queue == queue] for queue in range(4)}
    for queue, deliveries in by_queue.items():
        assert bodies(deliveries) == sent[queue * 500 : queue * 500 + 500]
        assert [d.offset for d in deliveries] == list(range(500))
    assert {d.attempt for d in found} == {1}
    assert len({d.id for d in found}) == 2000
    assert client.pull(group="g-" + transport, topics=[topic]).deliveries == []


def put_topic(site, name, queues=4):
    from common.config import open_store

    store = open_store(site.config)
    if store.get("topic", name) is None:
        store.put("topic", name, {"queues": queues, "durability": "memory"}, 0)
    store.close()
    for proxy in site.proxies:
        if proxy.child.poll() is None:
            known(site, proxy, name)


def known(site, proxy, topic):
    """Wait until the proxy has seen the new topic."""
    client = site.client(proxy)
    until(lambda: client.pull(group="probe", topics=[topic]).code == Code.OK, f"topic {topic} known to the proxy")
    client.close()


def test_a_message_keeps_the_id_that_its_producer_chose(site, proxy, link):
    put_topic(site, "ids")
    link.append("ids", [b"x"], own_id="order-17")
    delivery = drain(site.client(proxy), "g", "ids", 1)[0]
    assert (delivery.id, delivery.message.id) == ("order-17", "order-17")


@pytest.mark.parametrize("transport", ["framed", "buffered"])
def test_the_largest_pull_reaches_a_stock_client_and_the_rest_comes_next(site, proxy, link, transport):
    topic = f"large-{transport}"
    put_topic(site, topic)
    for queue in range(4):
        link.append(topic, [bytes([queue]) * (4 << 20)], queue)
    client = site.client(proxy, transport)
    first = client.pull(group="g", topics=[topic], max_bytes=12 << 20, max_messages=10_000).deliveries
    assert len(first) == 2  # a third one would lie beyond 12 MiB, its headers counted
    rest = drain(client, "g", topic, 2, max_bytes=12 << 20)
    assert sorted(bodies(first + rest)) == [bytes([queue]) * (4 << 20) for queue in range(4)]


def test_a_long_poll_wakes_with_the_message(site, proxy, link):
    put_topic(site, "wakes")
    waiting = InBackground(site.client(proxy).pull, group="g", topics=["wakes"], wait_ms=15_000)
    parked(link, 1)
    start_s = time.monotonic()
    link.append("wakes", [b"now"], queue=2)
    assert bodies(waiting.wait().deliveries) == [b"now"]
    assert waiting.ended_s - start_s < 2.0


def test_a_long_poll_ends_empty_when_nothing_comes(site, proxy):
    put_topic(site, "quiet")
    response = site.client(proxy).pull(group="g", topics=["quiet"], wait_ms=50)
    assert (response.code, response.deliveries) == (Code.OK, [])


def test_what_is_not_acknowledged_comes_back_as_the_next_attempt(site, proxy, link):
    put_topic(site, "again")
    link.append("again", [b"a", b"b"])
    client = site.client(proxy)
    first = client.pull(group="g", topics=["again"], invisible_ms=1000)
    assert [d.attempt for d in first.deliveries] == [1, 1]
    acks = [Ack(first.deliveries[0].receipt)]
    second = client.pull(group="g", topics=["again"], wait_ms=5000, acks=acks)
    assert [(d.message.body, d.attempt) for d in second.deliveries] == [(b"b", 2)]
    third = client.pull(group="g", topics=["again"], max_messages=0, acks=[Ack(first.deliveries[1].receipt)])
    assert third.ack_results[0].code == Code.STALE_RECEIPT
    assert third.ack_results[0].error


def test_a_retry_comes_back_at_once_and_an_extension_holds(site, proxy, link):
    put_topic(site, "verdicts")
    link.append("verdicts", [b"retry", b"hold"])
    client = site.client(proxy)
    first = client.pull(group="g", topics=["verdicts"], invisible_ms=1000).deliveries
    acks = [Ack(first[0].receipt, Verdict.RETRY, 0), Ack(first[1].receipt, Verdict.EXTEND, 60_000)]
    second = client.pull(group="g", topics=["verdicts"], wait_ms=2000, acks=acks)
    assert [r.code for r in second.ack_results] == [Code.OK, Code.OK]
    assert [(d.message.body, d.attempt) for d in second.deliveries] == [(b"retry", 2)]


def test_receipts_that_are_not_ours_change_nothing(site, proxy, link):
    put_topic(site, "forged")
    link.append("forged", [b"x"] * 3)
    client = site.client(proxy)
    held = client.pull(group="g", topics=["forged"]).deliveries
    good = held[0].receipt
    forged = bytearray(good)
    forged[40] ^= 1
    acks = [Ack(bytes(forged)), Ack(b""), Ack(good[:-1]), Ack(good[:48] + b"\xff" * 4)]
    assert [r.code for r in client.pull(group="g", max_messages=0, acks=acks).ack_results] == [Code.STALE_RECEIPT] * 4
    foreign = client.pull(group="another", topics=["forged"], max_messages=0, acks=[Ack(good)])
    assert foreign.ack_results[0].code == Code.STALE_RECEIPT
    for _ in range(2):  # twice is harmless
        assert client.pull(group="g", max_messages=0, acks=[Ack(good)]).ack_results[0].code == Code.OK


@pytest.mark.parametrize("transport", ["framed", "buffered"])
def test_thousands_of_acks_in_one_call_count_each(site, proxy, link, transport):
    many = f"many-{transport}"
    put_topic(site, many)
    for _ in range(4):
        link.append(many, [b"m"] * 1000)
    client = site.client(proxy)
    held = []
    while len(held) < 4000:
        held += client.pull(group="g", topics=[many], max_messages=10_000, wait_ms=1000).deliveries
    acks = [Ack(d.receipt) for d in held] + [Ack(b"junk")]
    # Far beyond what a stranger may send, and it is the first call of its connection.
    results = site.client(proxy, transport).pull(group="g", max_messages=0, acks=acks).ack_results
    assert [r.code for r in results] == [Code.OK] * 4000 + [Code.STALE_RECEIPT]
    lag = client.pull(group="g", topics=[many], invisible_ms=1000, wait_ms=100)
    assert lag.deliveries == []


def test_positions_read_without_moving_the_group(site, proxy, link):
    put_topic(site, "replay", 1)
    link.append("replay", [b"%d" % i for i in range(10)], queues=1)
    client = site.client(proxy)
    response = client.pull(group="g", positions=[Position("replay", 0, offset=3, end_offset=7)], max_messages=100)
    assert bodies(response.deliveries) == [b"3", b"4", b"5", b"6"]
    assert {d.receipt for d in response.deliveries} == {b""}
    report = response.positions[0]
    assert (report.code, report.next_offset, report.min_offset, report.end_offset) == (Code.OK, 7, 0, 10)
    past = client.pull(group="g", positions=[Position("replay", 0, offset=11)]).positions[0]
    assert (past.code, past.end_offset) == (Code.OFFSET_OUT_OF_RANGE, 10)
    assert len(drain(client, "g", "replay", 10)) == 10


def test_two_proxies_share_a_group_and_each_takes_the_others_receipts(site, proxy, link):
    other = site.proxy()
    put_topic(site, "shared")
    link.append("shared", [b"%d" % i for i in range(40)])
    one, two = site.client(proxy), site.client(other)
    first = one.pull(group="g", topics=["shared"], max_messages=15, invisible_ms=60_000).deliveries
    rest = two.pull(group="g", topics=["shared"], max_messages=100, invisible_ms=60_000).deliveries
    assert sorted(map(int, bodies(first + rest))) == list(range(40))
    acks = [Ack(d.receipt) for d in first]
    assert {r.code for r in two.pull(group="g", max_messages=0, acks=acks).ack_results} == {Code.OK}
    assert other.stop() == 0


def test_a_client_that_leaves_its_long_poll_is_leased_nothing(site, proxy, link):
    put_topic(site, "left")
    gone, stays = site.client(proxy), site.client(proxy)
    InBackground(gone.pull, group="g", topics=["left"], wait_ms=20_000)
    parked(link, 1)
    cut(gone)
    parked(link, 0)
    link.append("left", [b"x"])
    response = stays.pull(group="g", topics=["left"], wait_ms=2000)
    assert [(d.message.body, d.attempt) for d in response.deliveries] == [(b"x", 1)]


def test_a_killed_proxy_keeps_nothing_from_the_others(site, proxy, link):
    doomed = site.proxy()
    put_topic(site, "killed")
    link.append("killed", [b"a", b"b"])
    held = site.client(doomed).pull(group="g", topics=["killed"], invisible_ms=1000).deliveries
    assert bodies(held) == [b"a", b"b"]
    InBackground(site.client(doomed).pull, group="g", topics=["killed"], wait_ms=20_000)
    parked(link, 1)
    doomed.kill()
    parked(link, 0)
    link.append("killed", [b"c"])
    client, found = site.client(proxy), {}
    while len(found) < 3:
        for delivery in client.pull(group="g", topics=["killed"], wait_ms=3000).deliveries:
            found[delivery.message.body] = delivery.attempt
    assert found == {b"a": 2, b"b": 2, b"c": 1}


def test_sigterm_answers_the_long_poll_and_exits_cleanly(site, link):
    put_topic(site, "stopped")
    stopping = site.proxy()
    known(site, stopping, "stopped")
    waiting = InBackground(site.client(stopping).pull, group="g", topics=["stopped"], wait_ms=20_000)
    parked(link, 1)
    assert stopping.stop() == 0
    assert waiting.wait().code in (Code.OK, Code.SHUTTING_DOWN)
    assert waiting.result.deliveries == []
    parked(link, 0)


def test_the_operators_pages_tell_how_it_goes(proxy):
    status, ready = proxy.page("/readyz")
    assert (status, '"ready": true' in ready) == (200, True)
    _, metrics = proxy.page("/metrics")
    for name in ("pulls_total", "deliveries_total", "acks_total", "reply_bytes_total", "parked", "connections"):
        assert f"penstock_consumer_{name} " in metrics
    assert 'penstock_consumer_codes_total{code="OK"}' in metrics
    assert 'penstock_consumer_pull_seconds_bucket{le="0.001"}' in metrics


def test_a_proxy_starts_on_its_snapshot_while_the_store_is_away(site, link, tmp_path):
    snapshot = tmp_path / "snapshot"
    first = site.proxy("--snapshot", snapshot)
    until(snapshot.exists, "the snapshot written")
    assert first.stop() == 0
    second = site.proxy("--snapshot", snapshot, config="zookeeper://127.0.0.1:1/none")
    link.append("orders", [b"still"])
    assert bodies(drain(site.client(second), "snapshot", "orders", 1)) == [b"still"]
    assert second.stop() == 0


def test_the_tls_listener_serves_beside_the_plain_one(site, link, tmp_path):
    require(shutil.which("openssl"), "the openssl command")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *named]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    put_topic(site, "tls")
    both = site.proxy("--tls-listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key)
    link.append("tls", [b"a" * 100_000, b"b"])
    for transport in ("framed", "buffered"):
        context = ssl.create_default_context(cafile=certificate)
        client = Client(both.facts["tls_port"], transport, context)
        assert len(drain(client, "g-" + transport, "tls", 2)) == 2
        client.close()
    assert len(drain(site.client(both), "g", "tls", 2)) == 2
    assert both.stop() == 0


def test_the_pure_twins_serve_the_same(site, link):
    put_topic(site, "pure")
    slow = site.proxy(env={"PENSTOCK_PURE": "1"})
    known(site, slow, "pure")
    link.append("pure", [b"%d" % i for i in range(100)])
    found = drain(site.client(slow), "g", "pure", 100)
    assert bodies(found) == [b"%d" % i for i in range(100)]
    assert slow.stop() == 0


def test_an_engine_that_hangs_makes_a_timeout_and_what_it_leased_meanwhile_comes_back_at_once(site, proxy, link):
    put_topic(site, "hangs")
    link.append("hangs", [b"x"])
    client = site.client(proxy)
    site.engine.child.send_signal(signal.SIGSTOP)
    try:
        response = client.pull(group="g", topics=["hangs"], invisible_ms=600_000)
        assert response.code == Code.TIMEOUT
    finally:
        site.engine.child.send_signal(signal.SIGCONT)
    again = client.pull(group="g", topics=["hangs"], wait_ms=2000)
    assert [(d.message.body, d.attempt) for d in again.deliveries] == [(b"x", 1)]


def test_while_the_engine_is_down_pulls_say_so_and_afterwards_they_go_on(site, proxy, link):
    put_topic(site, "outage")
    put_topic(site, "empty")
    link.append("outage", [b"a", b"b"])
    client = site.client(proxy)
    held = client.pull(group="g", topics=["outage"], max_messages=1, invisible_ms=60_000).deliveries
    waiting = InBackground(site.client(proxy).pull, group="g", topics=["empty"], wait_ms=20_000)
    parked(link, 1)
    site.engine.kill()
    assert waiting.wait().code in (Code.UNAVAILABLE, Code.TIMEOUT)
    during = until(
        lambda: (r := client.pull(group="g", topics=["outage"])).code == Code.UNAVAILABLE and r, "UNAVAILABLE"
    )
    assert during.retry_after_ms > 0
    assert proxy.page("/readyz")[0] == 503
    site.start_engine()
    until(lambda: proxy.page("/readyz")[0] == 200, "the link is up again")
    acks, again = [Ack(d.receipt) for d in held], []

    def acknowledged():
        """Until the engine has read the group's definition, it does not know the lease and delivers nothing."""
        answer = client.pull(group="g", topics=["outage"], acks=acks)
        again.extend(bodies(answer.deliveries))
        assert answer.code == Code.OK and answer.ack_results[0].code in (Code.OK, Code.UNAVAILABLE)
        return answer.ack_results[0].code == Code.OK

    until(acknowledged, "the acknowledgement counts")
    until(lambda: again or again.extend(bodies(client.pull(group="g", topics=["outage"]).deliveries)), "the rest comes")
    assert again == [b"b"]
