"""Requests that wait, asked again with what is left of their time."""

import json

from engine.link.operations import PULL, READ, TOPIC
from engine.link.pull import decode_request, encode_pull
from engine.link.read import ReadPosition, ReadQuestion
from engine.link.shorter_wait import with_shorter_wait


def test_a_pull_waits_for_what_is_left():
    asked = encode_pull("group", [("orders", 2), ("pay", 3)], wait_ms=5_000, max_messages=7)
    assert with_shorter_wait(PULL, asked, 1_200) == encode_pull(
        "group", [("orders", 2), ("pay", 3)], wait_ms=3_800, max_messages=7
    )
    assert decode_request(with_shorter_wait(PULL, asked, 9_000)).wait_ms == 0


def test_a_read_waits_for_what_is_left():
    asked = ReadQuestion([ReadPosition("orders", 0, offset=4)], 10, 0, 5_000)
    assert json.loads(with_shorter_wait(READ, asked.encode(), 1_200)) == json.loads(
        asked._replace(wait_ms=3_800).encode()
    )


def test_other_requests_stay():
    assert with_shorter_wait(TOPIC, b"{}", 1_200) == b"{}"
