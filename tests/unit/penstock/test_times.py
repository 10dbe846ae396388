"""Times on the command line."""

import time

import pytest

from penstock.terminal.times import TIME_RULE, parse_time


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T02:00:00.5+02:00", 500),
        ("1970-01-02", 86_400_000),
        ("@1234", 1_234),
    ],
)
def test_a_time_is_read_in_any_form_of_iso_8601_or_as_unix_milliseconds(text, time_ms):
    assert parse_time(text) == time_ms


@pytest.mark.parametrize(("text", "age_ms"), [("0s", 0), ("90s", 90_000), ("10m", 600_000), ("3d", 259_200_000)])
def test_an_age_is_counted_back_from_now(text, age_ms):
    assert abs(time.time() * 1000 - age_ms - parse_time(text)) < 10_000


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-1h", "10 m", "1w", "999999999d", "@", "@-1", "@1.5", "1969-01-01", "@99999999999999999999"],
)
def test_what_is_not_a_time_is_rejected_with_the_rule(text):
    with pytest.raises(ValueError, match="an age such as") as refused:
        parse_time(text)
    assert str(refused.value) == TIME_RULE
