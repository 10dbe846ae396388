"""Administration over librdkafka, where a real broker cannot be made to answer as wanted."""

import pytest

from tests.services import require

try:
    from confluent_kafka import KafkaError, KafkaException

    from common.kafka.librdkafka import admin
except ImportError:
    KafkaError = None


class Answers:
    """A consumer whose questions for committed offsets get these answers, in their order."""

    def __init__(self, *answers) -> None:
        self._left = [*answers]

    def committed(self, asked, timeout_s):
        answer = self._left.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


@pytest.fixture(autouse=True)
def library(monkeypatch):
    require(KafkaError is not None, "pip install confluent-kafka")
    monkeypatch.setattr(admin, "COORDINATOR_PAUSE_S", 0.0)


def test_a_coordinator_that_moves_is_asked_again():
    answers = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ["found"]
    assert admin._committed(Answers(*answers), ["asked"]) == ["found"]


def test_another_error_is_told_at_once():
    with pytest.raises(KafkaException):
        admin._committed(Answers(KafkaError.GROUP_AUTHORIZATION_FAILED, ["found"]), ["asked"])


def test_a_coordinator_that_never_comes_back_is_told(monkeypatch):
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_S", -1.0)
    with pytest.raises(KafkaException):
        admin._committed(Answers(KafkaError.NOT_COORDINATOR, ["found"]), ["asked"])
