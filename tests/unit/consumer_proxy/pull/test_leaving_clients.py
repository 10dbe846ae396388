"""Replies whose client has left, and pulls during a stop of the proxy."""

from common.contract import Ack, Code
from engine.link.acknowledgement import RELEASE, AckRange
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record, token
from tests.unit.consumer_proxy.world import ID

ONE = answer([piece([record(message(), ID)])])


def test_an_answer_behind_its_timeout_is_released_since_no_client_saw_it(world):
    world.call()
    world.clock.advance(4000)
    world.pulls.sweep()
    assert world.response().code == Code.TIMEOUT
    world.source.answer(ONE)
    assert world.connection.replies == []
    assert world.source.told[0].acks == [AckRange(token(), 0, 1, RELEASE)]


def test_the_engine_is_told_when_a_waiting_client_leaves(world):
    world.call(wait_ms=30_000)
    world.connection.leave()
    assert len(world.source.cancelled) == 1
    assert world.stats.abandoned == 1


def test_what_arrives_for_a_client_that_has_left_is_given_back(world):
    world.call(topics=["orders"])
    world.connection.leave()
    pieces = [
        piece([record(message(), ID)] * 3, delta=2, offset=1002),
        piece([record(message(), ID)], of=token(lease=8)),
    ]
    world.source.answer(answer(pieces))
    told = world.source.told[0]
    assert (told.group, told.topics, told.max_messages) == ("billing", (("orders", 4),), 0)
    assert told.acks == [AckRange(token(), 2, 3, RELEASE), AckRange(token(lease=8), 0, 1, RELEASE)]
    assert world.stats.given_back == 4


def test_a_reply_that_had_not_left_when_its_connection_ended_is_released(world):
    world.call()
    world.source.answer(
        answer([piece([record(message(), ID)] * 3), piece([record(message(), ID)] * 2, delta=3, offset=1003)])
    )
    world.connection.leave(unsent=True)
    assert world.source.told[0].acks == [AckRange(token(), 0, 5, RELEASE)]
    assert (world.stats.given_back, world.stats.abandoned) == (5, 0)


def test_every_reply_of_calls_in_a_row_that_had_not_left_is_released(world):
    world.connection.reads = False
    for lease in (7, 8, 9):
        world.call()
        world.source.answer(answer([piece([record(message(), ID)] * 2, token(lease=lease))]))
        if lease == 7:
            world.connection.left = world.connection.queued
    world.connection.leave(unsent=True)
    released = [each for told in world.source.told for each in told.acks]
    assert released == [AckRange(token(lease=lease), 0, 2, RELEASE) for lease in (9, 8)]


def test_a_client_that_left_after_its_reply_is_nobodys_business(world):
    world.call()
    world.source.answer(ONE)
    world.connection.leave()
    assert (world.source.cancelled, world.source.told, world.stats.abandoned) == ([], [], 0)


def test_the_closing_is_passed_on_to_who_listened_before(world):
    heard = []
    world.connection.on_close = heard.append
    world.call()
    world.source.answer(ONE)
    world.call()
    world.connection.leave()
    assert heard == [world.connection]


def test_a_stop_calls_back_what_waits_so_that_its_acks_get_their_codes(world):
    world.call(acks=[Ack(receipt(0))], wait_ms=30_000)
    world.pulls.stop()
    assert len(world.source.cancelled) == 1
    world.source.answer(answer([], codes=(0,)))
    response = world.response()
    assert (response.code, [r.code for r in response.ack_results]) == (Code.OK, [Code.OK])


def test_what_the_engine_does_not_answer_during_a_stop_is_told_so(world):
    world.call(acks=[Ack(receipt(0))], wait_ms=30_000)
    world.pulls.stop()
    world.pulls.abandon()
    response = world.response()
    assert (response.code, [r.code for r in response.ack_results]) == (Code.SHUTTING_DOWN, [Code.SHUTTING_DOWN])
    world.source.answer(ONE)
    assert len(world.source.told) == 1


def test_a_pull_during_a_stop_is_sent_elsewhere(world):
    world.pulls.stop()
    assert world.refused()[0] == Code.SHUTTING_DOWN
