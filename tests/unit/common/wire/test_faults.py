import pytest

from common.contract import Code
from common.wire import faults
from common.wire.faults import AckFault, CallFault, MessageFault, WireError, WireFault


@pytest.mark.parametrize(
    ("enum", "table"),
    [
        (WireFault, faults.WIRE_SENTENCES),
        (CallFault, faults.CALL_FAULTS),
        (MessageFault, faults.MESSAGE_FAULTS),
        (AckFault, faults.ACK_FAULTS),
    ],
)
def test_every_fault_but_none_has_its_answer(enum, table):
    assert set(table) == set(enum) - {enum.NONE}


def test_answers_to_parsed_calls_tell_the_caller_not_to_retry():
    for table in (faults.CALL_FAULTS, faults.MESSAGE_FAULTS, faults.ACK_FAULTS):
        for code, sentence in table.values():
            assert code // 100 == 1
            assert "." in sentence.split(":")[0] or sentence.startswith(("Message:", "Credential"))


def test_a_wire_error_says_field_rule_and_place_and_never_the_bytes():
    error = WireError(WireFault.FIELD_TYPE, 12, 0x401, 7)
    assert str(error) == "Message.topic: a field has another type than the contract's (byte 12)"
    assert (error.rule, error.at, error.field, error.seqid) == (WireFault.FIELD_TYPE, 12, "Message.topic", 7)


def test_too_large_bodies_have_their_own_code():
    assert faults.MESSAGE_FAULTS[MessageFault.BODY_SIZE][0] == Code.TOO_LARGE
