"""Times as people see them."""

from common.utc import utc, utc_ms


def test_a_time_is_shown_in_utc_with_its_zone():
    assert utc(1_700_000_000_123) == "2023-11-14T22:13:20Z"
    assert utc_ms(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_a_time_outside_the_calendar_is_shown_as_its_number():
    assert utc(1 << 62) == str(1 << 62)
