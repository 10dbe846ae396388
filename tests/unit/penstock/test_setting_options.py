"""Options of settings: what their text becomes."""

import time

from penstock.terminal.setting_options import StartType


def test_latest_is_the_moment_of_the_command_and_earliest_has_no_time():
    before = time.time_ns() // 1_000_000
    name, at_ms = StartType().convert("latest", None, None)
    assert name == "latest"
    assert before <= at_ms <= time.time_ns() // 1_000_000
    assert StartType().convert("earliest", None, None) == ("earliest", 0)
    assert StartType().convert("2026-01-01T00:00:00Z", None, None)[0] == "time"
