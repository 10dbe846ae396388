"""Administration over librdkafka, where a real broker cannot be made to answer as wanted."""

import pytest

from common.kafka.errors import ClusterUnreachable, KafkaRefusal
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


@pytest.fixture
def ask(monkeypatch):
    """Ask for the offsets of a group, which is described by the second argument."""
    require(KafkaError is not None, "pip install confluent-kafka")
    monkeypatch.setattr(admin, "COORDINATOR_PAUSE_S", 0.0)

    def committed(answers, describe=lambda groups: {}):
        made = object.__new__(admin.LibrdkafkaAdmin)
        made._described = describe
        return made._committed(Answers(*answers), "group", ["asked"])

    return committed


def test_a_coordinator_that_moves_is_asked_again(ask):
    answers = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ["found"]
    assert ask(answers) == ["found"]


def test_another_error_is_told_at_once(ask):
    with pytest.raises(KafkaException):
        ask([KafkaError.GROUP_AUTHORIZATION_FAILED, ["found"]])


def test_a_coordinator_that_never_comes_back_is_told(ask, monkeypatch):
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_S", -1.0)
    with pytest.raises(KafkaException):
        ask([KafkaError.NOT_COORDINATOR, ["found"]])


def test_without_an_answer_a_description_of_the_group_tells_a_refusal_and_else_it_is_asked_again(ask):
    def refused(number):
        def describe(groups):
            raise KafkaRefusal(number, "refused")

        return describe

    def away(groups):
        raise ClusterUnreachable("away")

    answers = KafkaError._TIMED_OUT, ["found"]
    with pytest.raises(KafkaRefusal):
        ask(answers, refused(KafkaError.GROUP_AUTHORIZATION_FAILED))
    for describe in (refused(KafkaError.GROUP_ID_NOT_FOUND), away, lambda groups: {}):
        assert ask(answers, describe) == ["found"]
