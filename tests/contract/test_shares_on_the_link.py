"""Shares of a total rate that the engine lends to proxies, over the link; both forms."""

import json

import pytest

from engine.link import layout


def lease(process: str, *limits: dict) -> bytes:
    return json.dumps({"role": "producer_proxy", "process": process, "limits": list(limits)}).encode()


def test_the_engine_lends_shares_that_never_add_up_to_more_than_the_total(engine):
    limit = {"key": "topic:orders:messages", "total": 900, "demand": 5000.0}
    answers = []
    for process in "abcabc":
        code, payload = engine.ask(layout.LEASE, lease(process, limit))
        assert code == 0
        answers.append(json.loads(payload))
    assert [answer["live"] for answer in answers] == [1, 2, 3, 3, 3, 3]
    held = [answer["shares"][0] for answer in answers[-3:]]
    assert min(held) > 0
    assert sum(held) <= 900.001


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"role": "p", "process": "a"}',
        lease("a", {"key": "k", "total": -1, "demand": 1}),
        lease("a", {"key": "k", "total": 10, "demand": True}),
        lease("a", {"key": 5, "total": 10, "demand": 1}),
        b'{"role": "p", "process": "a", "limits": [{"key": "k", "total": NaN, "demand": 1}]}',
        lease("a", *({"key": str(i), "total": 1, "demand": 1} for i in range(1001))),
    ],
)
def test_a_lease_that_makes_no_sense_is_invalid(engine, payload):
    code, sentence = engine.ask(layout.LEASE, payload)
    assert code == layout.INVALID
    assert sentence.startswith(b"LEASE: ")
