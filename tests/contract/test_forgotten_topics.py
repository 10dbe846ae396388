"""A proxy over three real engines, one of which forgets a topic: it is asked again, and no message goes elsewhere."""

import pytest

from common.contract import Code, Message
from common.keyhash import queue_of
from tests.contract.test_ids_over_groups import NAMES, QUEUES, groups
from tests.services.fake_broker import wait_until

__all__ = ["groups"]


def key_at(groups, name: str) -> str:
    """A key whose queue is at this engine."""
    return next(key for key in map(str, range(1000)) if groups.home(queue_of(key.encode(), QUEUES)) == name)


def forget(groups, name: str):
    """Have this engine forget the topic, of which it has no message."""
    engine = groups.engines[name]
    engine.topic("later")  # the topic with the highest id stays
    old = engine.log.topic("once")
    assert engine.log.end_if_empty(old) == 0
    engine.log.forget_topic(old)
    return old


def send(groups, key: str, **fields):
    (result,) = groups.send(Message(topic="once", key=key, body=b"b", **fields))
    return result


@pytest.fixture
def sent(groups):
    """Messages at the first engine; all three know the topic."""
    assert send(groups, "0").code == Code.OK
    first, *others = NAMES
    before = groups.stored()
    for _ in range(3):
        assert send(groups, key_at(groups, first)).code == Code.OK
    assert groups.stored() == before + 3
    at_0 = groups.home(queue_of(b"0", QUEUES))
    return next(name for name in others if name != at_0)


@pytest.mark.parametrize("delay_ms", [None, 60_000])
def test_a_send_to_the_engine_that_has_forgotten_the_topic_is_refused_once_and_then_stored_in_the_new_one(
    groups, sent, delay_ms
):
    old, engine, key = forget(groups, sent), groups.engines[sent], key_at(groups, sent)
    others = {name: each.log.topic("once").id for name, each in groups.engines.items() if name != sent}
    codes = []

    def is_stored():
        codes.append(send(groups, key, delay_ms=delay_ms).code)
        return codes[-1] == Code.OK

    wait_until(is_stored)
    assert set(codes[:-1]) <= {Code.UNAVAILABLE}
    new = engine.log.topic("once")
    assert new.id > old.id and engine.log.topic_by_id(old.id) is None
    if delay_ms is None:
        assert engine.log.bounds(new.id, queue_of(key.encode(), QUEUES)) == (0, 1)
    else:
        assert engine.timers.search_topics({new.id}).step()
        assert engine.timers._store.watcher.found == {new.id}
    assert {name: each.log.topic("once").id for name, each in groups.engines.items() if name != sent} == others


def test_messages_for_other_engines_are_not_refused(groups, sent):
    forget(groups, sent)
    first = NAMES[0]
    assert [send(groups, key_at(groups, first)).code for _ in range(5)] == [Code.OK] * 5


def test_an_append_to_a_forgotten_topic_in_one_turn_with_others_is_refused_alone(groups, sent):
    engine = groups.engines[sent]
    old = forget(groups, sent)
    other = engine.topic("later")
    engine.store(other, 1)
    with pytest.raises(AssertionError):
        engine.store(old.id, 1)
    engine.store(other, 1)
    assert engine.log.bounds(other, 0) == (0, 2)


def test_the_verb_lists_what_is_unused(groups, sent):
    engine = groups.engines[sent]
    assert engine.admin("unused_topics", days=0) == {"unused": []}
    assert engine.admin("unused_topics", days=-1)[0] == Code.INVALID
