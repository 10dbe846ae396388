"""Structs and services of the contract as thriftpy2's classes, and the encoding of calls and replies.

The files are loaded once, at import, before any thread. The modules' names are fixed so that the objects can be
pickled. A frame is one strict binary message without the length of the framing.
"""

import sys
from typing import Any

from thriftpy2.parser import parser as thrift_parser
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TTransportException
from thriftpy2.transport.framed import TCyFramedTransport
from thriftpy2.transport.memory import TCyMemoryBuffer

from common.contract import thrift_folder

INTERNAL_ERROR = TApplicationException.INTERNAL_ERROR
PROTOCOL_ERROR = TApplicationException.PROTOCOL_ERROR
UNKNOWN_METHOD = TApplicationException.UNKNOWN_METHOD
_CHUNK_BYTES = 65_536
# thriftpy2's own `load` makes both for each file, which takes longer than to parse it.
_lexer = thrift_parser.lex.lex(module=thrift_parser)
_parser = thrift_parser.yacc.yacc(module=thrift_parser, debug=False, write_tables=False)


def _load(name: str) -> Any:
    title = f"{name}_thrift"
    made = thrift_parser.parse(str(thrift_folder() / f"{name}.thrift"), title, lexer=_lexer, parser=_parser)
    sys.modules[title] = made  # where a pickled object is looked for
    return made


# The other two include this one under the same name, so there is one Message class, not three.
_message = _load("message")
_producer = _load("producer")
_consumer = _load("consumer")

Credential = _message.Credential
Message = _message.Message

Producer = _producer.Producer
SendRequest = _producer.SendRequest
SendResponse = _producer.SendResponse
SendResult = _producer.SendResult

Ack = _consumer.Ack
AckResult = _consumer.AckResult
Consumer = _consumer.Consumer
Delivery = _consumer.Delivery
Position = _consumer.Position
PositionReport = _consumer.PositionReport
PullRequest = _consumer.PullRequest
PullResponse = _consumer.PullResponse
TopicReport = _consumer.TopicReport

_ARGUMENTS = {"send": Producer.send_args, "pull": Consumer.pull_args}
_RESULTS = {"send": Producer.send_result, "pull": Consumer.pull_result}


class _OneFrame:
    """A transport that serves one frame and then raises.

    thriftpy2 allocates as many bytes as a length claims and, over its memory buffer, returns old heap for missing
    bytes. Over this transport it stops at the frame's end. It copies each frame that it reads, so a long frame is
    served in chunks.
    """

    def __init__(self, frame: bytes):
        self._frame, self._at, self._head = frame, 0, True

    def read(self, size: int) -> bytes:
        if self._head:
            if self._at >= len(self._frame):
                raise TTransportException(TTransportException.END_OF_FILE, "the message reaches past its frame")
            self._head = False
            return min(_CHUNK_BYTES, len(self._frame) - self._at).to_bytes(4, "big")
        chunk = self._frame[self._at : self._at + size]
        self._at += len(chunk)
        self._head = True
        return chunk


def _reader(frame: bytes) -> TCyBinaryProtocol:
    return TCyBinaryProtocol(TCyFramedTransport(_OneFrame(frame)))


def _encode(name: str, kind: int, seqid: int, struct: Any) -> bytes:
    out = TCyMemoryBuffer()
    protocol = TCyBinaryProtocol(out)
    protocol.write_message_begin(name, kind, seqid)
    protocol.write_struct(struct)
    return out.getvalue()


def decode_call(frame: bytes) -> tuple[str, int, object]:
    """(method, seqid, arguments) of a call, whose `arguments.request` is the request struct.

    Only for a frame that passed `common.wire.walk_send` or `walk_pull` without a WireError: a forged count would block
    this decoder for seconds. Fields of elements with a fault may be missing (None) or, where a text is not UTF-8,
    bytes.
    """
    protocol = _reader(frame)
    name, _kind, seqid = protocol.read_message_begin()
    arguments = _ARGUMENTS[name]()
    protocol.read_struct(arguments)
    return name, seqid, arguments


def decode_struct(kind: type, encoded: bytes) -> Any:
    """Decode a struct of class `kind` from its fields and STOP, which the walker found complete within a call."""
    struct = kind()
    _reader(encoded).read_struct(struct)
    return struct


def encode_struct(struct: Any) -> bytes:
    """Encode the fields of a struct and STOP."""
    out = TCyMemoryBuffer()
    TCyBinaryProtocol(out).write_struct(struct)
    return out.getvalue()


def encode_reply(name: str, seqid: int, result: Any) -> bytes:
    """The frame that returns `result`, a SendResponse or PullResponse."""
    return _encode(name, TMessageType.REPLY, seqid, _RESULTS[name](success=result))


def encode_exception(name: str, seqid: int, kind: int, text: str) -> bytes:
    """The frame that raises TApplicationException(kind, text) in the caller. It answers bytes that are not a call."""
    return _encode(name, TMessageType.EXCEPTION, seqid, TApplicationException(kind, text))


def encode_call(name: str, seqid: int, request: Any) -> bytes:
    """The frame that calls `name` with `request`, a SendRequest or PullRequest."""
    return _encode(name, TMessageType.CALL, seqid, _ARGUMENTS[name](request))


def decode_reply(frame: bytes, seqid: int | None = None) -> object:
    """The SendResponse or PullResponse of a reply from a trusted proxy; `seqid`, if given, must be that of the call.

    Raises:
        TApplicationException: sent by the proxy, or made here for an answer that does not belong to this call.
    """
    protocol = _reader(frame)
    name, kind, answered = protocol.read_message_begin()
    if kind == TMessageType.EXCEPTION:
        raise protocol.read_struct(TApplicationException())
    if name not in _RESULTS or kind != TMessageType.REPLY:
        raise TApplicationException(TApplicationException.INVALID_MESSAGE_TYPE, f"not a reply of Penstock: {name!r}")
    if seqid is not None and answered != seqid:
        raise TApplicationException(TApplicationException.BAD_SEQUENCE_ID, f"reply {answered} to call {seqid}")
    result = _RESULTS[name]()
    protocol.read_struct(result)
    if result.success is None:
        raise TApplicationException(TApplicationException.MISSING_RESULT, f"{name} answered without a result")
    return result.success
