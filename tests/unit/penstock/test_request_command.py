"""`penstock reply`: what the program gets of a request."""

from common.contract import Delivery, Message
from penstock.commands.request import Runner


def test_a_request_whose_key_no_environment_can_hold_is_answered_without_it():
    message = Message(topic="orders", body=b"asked ", key="a\0b")
    delivery = Delivery(
        receipt=b"r", queue=0, offset=1, attempt=1, stored_at_ms=0, id="i", message=message, reply_token=b"t"
    )
    shell = ("sh", "-c", "cat; echo $PENSTOCK_TOPIC ${PENSTOCK_KEY-none}")
    assert Runner(shell, 30_000)(delivery) == b"asked orders none\n"
