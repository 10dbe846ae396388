import pickle
import re
import subprocess
import sys

import pytest
import thriftpy2
from thriftpy2.thrift import TApplicationException

from common import contract
from common.contract import Credential, Message, SendRequest, SendResponse, SendResult

REQUEST = SendRequest(
    credential=Credential(app="shop", key_id="k", issued_at_ms=5, signature=b"s" * 32),
    messages=[Message(topic="pay", body=b"\x00\xff", key="schlüssel", properties={"a": "b"})],
    timeout_ms=100,
)


def test_a_call_decodes_to_what_was_encoded():
    name, seqid, arguments = contract.decode_call(contract.encode_call("send", -7, REQUEST))
    assert (name, seqid, arguments.request) == ("send", -7, REQUEST)


def test_a_body_of_many_megabytes_goes_through():
    big = SendRequest(credential=REQUEST.credential, messages=[Message(topic="t", body=b"b" * 10_000_000)])
    assert contract.decode_call(contract.encode_call("send", 1, big))[2].request == big


def test_a_reply_decodes_to_what_was_encoded():
    response = SendResponse(results=[SendResult(code=contract.Code.OK, id="x", queue=1, offset=2**40)])
    frame = contract.encode_reply("send", 3, response)
    assert contract.decode_reply(frame) == contract.decode_reply(frame, 3) == response
    pulled = contract.PullResponse(code=contract.Code.OK, deliveries=[], ack_results=[])
    assert contract.decode_reply(contract.encode_reply("pull", 3, pulled)) == pulled


def test_an_exception_is_raised_in_the_caller_with_kind_and_text():
    frame = contract.encode_exception("sned", 3, contract.UNKNOWN_METHOD, "no such method")
    with pytest.raises(TApplicationException, match="no such method") as caught:
        contract.decode_reply(frame)
    assert caught.value.type == contract.UNKNOWN_METHOD


def test_a_reply_to_another_call_is_refused():
    frame = contract.encode_reply("send", 3, SendResponse(results=[]))
    with pytest.raises(TApplicationException, match="reply 3 to call 4"):
        contract.decode_reply(frame, 4)


def test_a_reply_without_a_result_or_that_is_a_call_is_refused():
    with pytest.raises(TApplicationException):
        contract.decode_reply(contract.encode_reply("send", 3, None))
    with pytest.raises(TApplicationException):
        contract.decode_reply(contract.encode_call("send", 3, REQUEST))


@pytest.mark.parametrize("size", [5, 30, 60, -1])
def test_a_cut_frame_raises_and_never_reads_past_its_end(size):
    with pytest.raises(Exception, match=r"past its frame|End of file"):
        contract.decode_call(contract.encode_call("send", 1, REQUEST)[:size])


def test_the_three_files_share_one_message_class_and_its_objects_pickle():
    assert contract.SendRequest.thrift_spec[2][2][1] is contract.Message is contract.Delivery.thrift_spec[7][2]
    assert pickle.loads(pickle.dumps(REQUEST)) == REQUEST


def test_the_enumerations_that_are_read_as_text_are_those_of_thriftpy2():
    loaded = [
        each
        for name in ("message", "producer", "consumer")
        for each in thriftpy2.load(str(contract.thrift_folder() / f"{name}.thrift"), f"{name}_thrift").__thrift_meta__[
            "enums"
        ]
    ]
    assert {each.__name__ for each in loaded} == {"Code", "Durability", "Operation", "Verdict"}
    for each in loaded:
        read = getattr(contract, each.__name__)
        assert read._VALUES_TO_NAMES == each._VALUES_TO_NAMES
        assert read._NAMES_TO_VALUES == each._NAMES_TO_VALUES
        assert all(getattr(read, name) == value for name, value in each._NAMES_TO_VALUES.items())


def test_what_needs_the_enumerations_alone_does_not_load_thriftpy2():
    program = "import sys; from common.contract import Code; import common.config, penstock.commands.topic; "
    program += "assert Code.OK == 0; assert 'thriftpy2' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_field_and_every_enum_value_has_a_comment():
    entry = re.compile(r"^  (?:\d+: (?:required|optional)|[A-Z_]+ = \d+,)")
    for path in sorted(contract.thrift_folder().glob("*.thrift")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if entry.match(line):
                above = lines[number - 1].strip()
                assert "//" in line or above.startswith("//"), f"{path.name}:{number + 1}: {line.strip()}"
