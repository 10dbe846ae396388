"""Rate limits at a producer proxy: every case on the hot path's front and on the reference alone. Nobody lends, so shares are static."""

import time

import gevent
import pytest

from common.clock import SystemClock
from common.contract import Code, Message
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes, credential, request


def change(desk, kind, name, **fields):
    found = desk.store.get(kind, name)
    desk.store.put(kind, name, {**(found.value if found else {}), **fields}, found.version if found else 0)


def orders(count, body=b"x", topic="orders"):
    return [Message(topic=topic, body=body) for _ in range(count)]


def emptied(desk, client, fixed, rate):
    """Use up the burst of a limit on `orders`."""
    results = client.call(request(*orders(rate), credential=fixed))
    assert codes(results) == [Code.OK] * rate
    return results


def test_a_topic_takes_a_burst_of_a_second_and_then_refuses_with_the_time_to_wait(desk):
    change(desk, "topic", "orders", rate_messages=5)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 5)
    results = client.call(request(*orders(3), credential=fixed))
    assert codes(results) == [Code.RATE_LIMITED] * 3
    assert all(400 <= result.retry_after_ms <= 600 for result in results)  # 3 messages at 5 a second
    assert "rate limit" in results[0].error
    assert results[0].id is None and results[0].offset is None


def test_the_time_to_wait_is_honest(desk):
    change(desk, "topic", "orders", rate_messages=5)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 5)
    (refused,) = client.call(request(*orders(1), credential=fixed))
    assert refused.code == Code.RATE_LIMITED
    gevent.sleep(refused.retry_after_ms / 1000)
    assert codes(client.call(request(*orders(1), credential=fixed))) == [Code.OK]


def test_a_short_wait_is_held_and_not_refused(desk):
    change(desk, "topic", "orders", rate_messages=50)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 50)
    began = time.monotonic()
    results = client.call(request(*orders(3), credential=fixed))
    assert codes(results) == [Code.OK] * 3
    assert 0.03 <= time.monotonic() - began <= 0.2


def test_a_call_larger_than_what_is_left_is_split_in_order(desk):
    change(desk, "topic", "orders", rate_messages=10)
    client, fixed = desk.client(), credential()
    results = client.call(request(*orders(30), credential=fixed))
    taken = codes(results).count(Code.OK)
    assert 10 <= taken <= 12  # the burst, and what a hold of 0.1 s allows
    assert codes(results) == [Code.OK] * taken + [Code.RATE_LIMITED] * (30 - taken)


def test_bytes_are_limited_too_and_a_message_larger_than_a_second_of_them_still_passes(desk):
    change(desk, "topic", "orders", rate_bytes=1000)
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(*orders(1, body=bytes(5000)), credential=fixed))) == [Code.OK]
    (refused,) = client.call(request(*orders(1), credential=fixed))
    assert refused.code == Code.RATE_LIMITED
    assert 3500 <= refused.retry_after_ms <= 4200


def test_one_topics_limit_is_none_of_the_others(desk):
    change(desk, "topic", "orders", rate_messages=2)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 2)
    mixed = [*orders(1), *orders(1, topic="pay"), *orders(1)]
    results = client.call(request(*mixed, credential=fixed))
    assert codes(results) == [Code.RATE_LIMITED, Code.OK, Code.RATE_LIMITED]


def test_an_application_is_limited_over_all_its_topics_and_credentials(desk):
    change(desk, "application", "shop", rate_messages=4)
    client = desk.client()
    assert codes(client.call(request(*orders(2), *orders(2, topic="pay"), credential=credential()))) == [Code.OK] * 4
    again = client.call(request(*orders(1), credential=credential(shift_ms=-1000)))
    assert codes(again) == [Code.RATE_LIMITED]


def test_the_proxy_is_limited_by_a_setting(desk):
    change(desk, "setting", "gate", rate_messages=3)
    client, fixed = desk.client(), credential()
    assert codes(client.call(request(*orders(3), credential=fixed))) == [Code.OK] * 3
    assert codes(client.call(request(*orders(1, topic="pay"), credential=fixed))) == [Code.RATE_LIMITED]


@pytest.mark.parametrize(("kind", "name"), [("topic", "orders"), ("application", "shop"), ("setting", "gate")])
def test_a_limit_changed_or_taken_away_counts_for_the_next_call(desk, kind, name):
    change(desk, kind, name, rate_messages=2)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 2)
    assert codes(client.call(request(*orders(1), credential=fixed))) == [Code.RATE_LIMITED]
    change(desk, kind, name, rate_messages=0)
    assert codes(client.call(request(*orders(500), credential=fixed))) == [Code.OK] * 500
    change(desk, kind, name, rate_messages=1)
    client.call(request(*orders(1), credential=fixed))
    assert codes(client.call(request(*orders(1), credential=fixed))) == [Code.RATE_LIMITED]


def test_a_message_refused_for_another_reason_costs_no_tokens(desk):
    change(desk, "topic", "pay", rate_messages=2)
    client, fixed = desk.client(), credential()
    for _ in range(5):
        large = client.call(request(*orders(1, body=bytes(4096), topic="pay"), credential=fixed))
        assert codes(large) == [Code.TOO_LARGE]
    assert codes(client.call(request(*orders(2, topic="pay"), credential=fixed))) == [Code.OK] * 2


def test_a_wrong_setting_of_the_gate_limits_nothing_and_is_told(desk, caplog):
    change(desk, "setting", "gate", rate_messages="many")
    assert codes(desk.client().call(request(*orders(3)))) == [Code.OK] * 3
    wait_until(lambda: 'rate_messages: "many" is not a whole number' in caplog.text)


def shifted(monkeypatch, hours):
    """The machine's wall clock steps; the monotonic one does not."""
    true_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: true_ms(self) + hours * 3_600_000)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_steps_gives_nobody_another_burst_and_takes_nobodys_rate(desk, monkeypatch, hours):
    change(desk, "topic", "orders", rate_messages=5)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 5)
    shifted(monkeypatch, hours)
    assert set(codes(client.call(request(*orders(5), credential=credential())))) == {Code.RATE_LIMITED}
    gevent.sleep(1.1)
    assert codes(client.call(request(*orders(5), credential=credential()))) == [Code.OK] * 5


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_steps_refuses_new_credentials_with_the_reason_and_takes_them_when_it_is_right_again(
    desk, monkeypatch, hours
):
    client, minted = desk.client(), credential()
    with monkeypatch.context() as stepped:
        shifted(stepped, hours)
        (refused,) = client.call(request(*orders(1), credential=minted))
        assert refused.code == Code.UNAUTHENTICATED
        assert "mint a new one, or set the clock" in refused.error
    assert codes(client.call(request(*orders(1), credential=minted))) == [Code.OK]


def test_a_call_without_the_time_for_a_hold_is_refused_with_a_time_and_not_timed_out(desk):
    change(desk, "topic", "orders", rate_messages=20)
    client, fixed = desk.client(), credential()
    emptied(desk, client, fixed, 20)
    (refused,) = client.call(request(*orders(1), credential=fixed, timeout_ms=5))
    assert refused.code == Code.RATE_LIMITED
    assert refused.retry_after_ms > 0


def test_a_crowd_that_waits_as_told_is_rejected_about_once_per_call(desk):
    change(desk, "topic", "orders", rate_messages=40)
    clients, fixed, counts = [desk.client() for _ in range(20)], credential(), {Code.OK: 0, Code.RATE_LIMITED: 0}
    emptied(desk, clients[0], fixed, 40)

    def send_five(client):
        accepted = 0
        while accepted < 5:
            (result,) = client.call(request(*orders(1), credential=fixed))
            counts[result.code] += 1
            accepted += result.code == Code.OK
            gevent.sleep((result.retry_after_ms or 0) / 1000)

    began = time.monotonic()
    gevent.joinall([gevent.spawn(send_five, client) for client in clients], raise_error=True, timeout=20)
    assert counts[Code.OK] == 100
    assert counts[Code.RATE_LIMITED] <= 120
    assert time.monotonic() - began <= 100 / 40 * 1.2
