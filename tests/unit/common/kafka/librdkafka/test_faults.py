"""Sentences for the library's errors."""

import pytest

from tests.services import require

try:
    from confluent_kafka import KafkaError

    from common.kafka.librdkafka.faults import outcome_of
except ImportError:
    KafkaError = None


@pytest.mark.parametrize("number", [29, 10, 87])
def test_the_sentence_of_a_record_that_was_not_stored_has_nothing_of_its_value(number):
    """The library gives the value of the record, and what lies behind it in memory, as the text of such an error."""
    require(KafkaError is not None, "pip install confluent-kafka")
    _, sentence = outcome_of(KafkaError(number, "card 4711\x0b"))
    assert "4711" not in sentence and sentence.endswith(f"{KafkaError(number).name()}: {KafkaError(number).str()}")
