"""Breakers, buffers, Kafka clusters and contact to the store, from pages of metrics as processes make them."""

import pytest

from console.watching.metrics_pages import MetricsPages
from tests.unit.console.consoles import text_of

PAGE = """# TYPE penstock_breaker_state gauge
penstock_breaker_state{broker_group="main"} %(breaker)s
# TYPE penstock_breaker_opened_total counter
penstock_breaker_opened_total{broker_group="main"} 3.0
# TYPE penstock_buffer_entries gauge
penstock_buffer_entries{store="redis"} 12.0
# TYPE penstock_buffer_bytes gauge
penstock_buffer_bytes{store="redis"} 2048.0
# TYPE penstock_buffer_oldest_seconds gauge
penstock_buffer_oldest_seconds{store="redis"} 4.0
# TYPE penstock_buffer_working gauge
penstock_buffer_working{store="redis"} %(working)s
# TYPE penstock_config_age_seconds gauge
penstock_config_age_seconds %(age)s
# TYPE penstock_config_damaged gauge
penstock_config_damaged 0.0
# TYPE penstock_kafka_bridge_connected gauge
penstock_kafka_bridge_connected{cluster="main"} %(kafka)s
"""
WELL = {"breaker": "0.0", "working": "1.0", "age": "0.0", "kafka": "1.0"}


def pages(**wrong):
    asked = []

    def reasons(address):
        asked.append(address)
        return ("buffer redis: connection refused",)

    made = MetricsPages([("10.0.0.1", 9)], lambda address: PAGE % {**WELL, **wrong}, reasons)
    made.sample(10.0)
    return made, asked


def test_the_states_of_all_parts_are_in_a_sample_and_no_reason_is_asked_while_all_is_well():
    made, asked = pages()
    states = made.states
    assert [(each.broker_group, each.state, each.opened) for each in states.breakers] == [("main", "closed", 3)]
    assert [(each.store, each.entries, each.bytes, each.is_working) for each in states.buffers] == [
        ("redis", 12, 2048, True)
    ]
    assert [(each.cluster, each.is_connected) for each in states.kafka] == [("main", True)]
    assert states.troubled == set() and asked == []


@pytest.mark.parametrize("wrong", [{"breaker": "2.0"}, {"working": "0.0"}, {"age": "5.0"}, {"kafka": "0.0"}])
def test_a_process_that_tells_of_something_wrong_is_asked_for_the_reason(wrong):
    made, asked = pages(**wrong)
    assert asked == [("10.0.0.1", 9)]
    assert made.states.reasons == {"10.0.0.1:9": ("buffer redis: connection refused",)}


def test_the_map_shows_backlog_breakers_contact_and_reasons(console):
    made, _ = pages(breaker="2.0", working="0.0", age="5.0")
    console.parts.sampler.pages = made
    text = text_of(console.as_role("viewer").get("/map"))
    for words in (
        "Fallback buffer, Redis", "12 messages, 2.0 KiB", "It takes nothing.", "open", "3 times",
        "1 of 1 processes have no contact: 10.0.0.1:9, for 5 s.", "buffer redis: connection refused",
    ):  # fmt: skip
        assert words in text
