"""Messages to and from the bytes that are stored."""

from thriftpy2.utils import deserialize, serialize

from common.contract import Message


def encoded(message: Message) -> bytes:
    return serialize(message)


def decoded(data: bytes) -> Message:
    return deserialize(Message(), data)
