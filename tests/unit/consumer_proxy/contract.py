"""Replies and messages by thriftpy2, as a client reads them."""

from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

from common.contract import Consumer


def decode_reply(frame):
    """(seqid, PullResponse), read as strictly as a client does."""
    protocol = TBinaryProtocol(TMemoryBuffer(frame))
    name, kind, seqid = protocol.read_message_begin()
    assert (name, kind) == ("pull", TMessageType.REPLY)
    result = Consumer.pull_result()
    result.read(protocol)
    protocol.read_message_end()
    assert protocol.trans.read(1) == b"", "bytes behind the reply"
    return seqid, result.success


def encode(struct):
    buffer = TMemoryBuffer()
    struct.write(TBinaryProtocol(buffer))
    return buffer.getvalue()
