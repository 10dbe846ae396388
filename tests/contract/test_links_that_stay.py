"""Links of slaves and controllers stay with what served when they came: it takes nothing from the node that serves now."""

import gevent
import pytest

from engine.broker.slave_reads import SlaveReads
from engine.broker.standby import Standby
from engine.link import layout
from engine.link.codes import DISK_FULL
from engine.link.proof import CONTROLLER_ROLE
from engine.link.pull import decode_answer, encode_pull
from engine.ops.roles import LinkKeys
from engine.server.native import NATIVE
from tests import link_bytes as raw
from tests.contract.link_engine import FORMS, KEY, CrampedEnv, CrampedFile, Engine, turn_until

ROUNDS = 20


def controller_link(engine: Engine) -> raw.RawLink:
    """Connect as a controller."""
    return engine.raw(KEY, role=CONTROLLER_ROLE)


def of_a_standby(engine: Engine) -> raw.RawLink:
    """A link that came while this broker did not lead."""
    clock, keys = engine.node.clock, LinkKeys(KEY)
    standby = Standby(keys, clock, bytes, dict, {}, lambda: "it does not lead", lambda peer: None, lambda: 0)
    standby.attach(engine.log, SlaveReads(engine.log, clock, engine.loop.in_loop))
    engine.server.greet_with(standby, engine.form)
    link = controller_link(engine)
    engine.server.greet_with(engine.node, engine.form)
    return link


def of_an_earlier_node(engine: Engine) -> raw.RawLink:
    """A link that came while this broker led an earlier time, with the same open log."""
    link = controller_link(engine)
    engine.begin_anew()
    return link


@pytest.fixture
def engine(kind, tmp_path):
    made = Engine(tmp_path / "engine", kind, CrampedEnv())
    yield made
    made.close()


@pytest.fixture(params=FORMS)
def kind(request):
    if request.param == "native" and not NATIVE:
        pytest.skip("the native form is not built")
    return request.param


@pytest.fixture(params=[of_a_standby, of_an_earlier_node])
def staying(request, engine):
    link = request.param(engine)
    yield link
    link.close()


def test_a_pull_is_woken_whatever_comes_on_such_a_link_in_the_same_turn(engine, staying):
    topic, producer, consumer = engine.topic(), engine.raw(), engine.raw()
    for number in range(ROUNDS):
        consumer.send(raw.PULL, encode_pull("g", [("orders", 2)], wait_ms=30_000))
        turn_until(lambda: engine.delivery.parked)
        staying.send(layout.CANCEL)  # first in the turn
        producer.send(raw.APPEND, raw.append(raw.MEMORY, raw.batch(topic, 0, [b"%d\0" % number])))
        with gevent.Timeout(5):
            _, _, _, answer = consumer.receive()
        assert decode_answer(answer)[1][0].first_offset == number
        producer.receive()


def test_an_append_that_meets_a_full_disk_is_refused_whatever_comes_on_such_a_link(engine, staying, monkeypatch):
    topic, producer = engine.topic(), engine.raw()
    before = engine.log.end_position
    monkeypatch.setattr(CrampedFile, "full", True)
    staying.send(layout.CANCEL)
    producer.send(raw.APPEND, raw.append(raw.MEMORY, raw.batch(topic, 0, [b"m\0"])))
    with gevent.Timeout(5):
        _, code, _, _ = producer.receive()
    monkeypatch.setattr(CrampedFile, "full", False)
    assert (code, engine.log.end_position) == (DISK_FULL, before)
