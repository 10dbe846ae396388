"""A loop that waits without an end is told, and one that goes on or rests is not."""

from kafka_bridge.heartbeat import ALLOWED_S, Heartbeat


class PlayedTime:
    now_s = 100.0


def test_a_loop_that_does_not_go_on_is_told_after_a_while_with_what_it_waits_for():
    time = PlayedTime()
    heart = Heartbeat(lambda: time.now_s)
    heart.beat("a turn", 60.0)
    time.now_s += 59.0
    assert heart.fault == ""
    time.now_s += 3.0
    assert heart.fault == "nothing has moved for 62 s: it waits for a turn" and heart.silent_s == 62.0
    heart.beat()
    time.now_s += ALLOWED_S
    assert heart.fault == "nothing has moved for 15 s: it waits for an answer of Kafka or of the engine"


def test_a_loop_that_goes_on_or_rests_is_not_told():
    time = PlayedTime()
    heart = Heartbeat(lambda: time.now_s)
    for _ in range(3):
        heart.beat()
        time.now_s += ALLOWED_S - 1.0
        assert heart.fault == ""
    heart.rest()
    time.now_s += 10 * ALLOWED_S
    assert heart.fault == "" and heart.silent_s == 0.0
