"""The contract by thriftpy2, as a client would load it."""

from pathlib import Path

import thriftpy2
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

THRIFT = Path(__file__).parents[3] / "thrift"
consumer = thriftpy2.load(str(THRIFT / "consumer.thrift"), module_name="deliver_test_consumer_thrift")
message = thriftpy2.load(str(THRIFT / "message.thrift"), module_name="deliver_test_message_thrift")


def decode_reply(frame):
    """(seqid, PullResponse), read as strictly as a client does."""
    protocol = TBinaryProtocol(TMemoryBuffer(frame))
    name, kind, seqid = protocol.read_message_begin()
    assert (name, kind) == ("pull", TMessageType.REPLY)
    result = consumer.Consumer.pull_result()
    result.read(protocol)
    protocol.read_message_end()
    assert protocol.trans.read(1) == b"", "bytes behind the reply"
    return seqid, result.success


def encode(struct):
    buffer = TMemoryBuffer()
    struct.write(TBinaryProtocol(buffer))
    return buffer.getvalue()
