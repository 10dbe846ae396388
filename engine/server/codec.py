"""Requests as the server decodes them: the link's codec, with its errors as answers to the client."""

from common.names import NAME_RULE, is_name
from engine.delivery.pull import Pull, PullRequest
from engine.link.errors import PayloadError
from engine.link.pull import decode_request, encode_answer
from engine.server.errors import RequestError


def decode_pull(payload: bytes) -> PullRequest:
    """Decode a PULL. Raises RequestError with one sentence when the bytes are not one."""
    try:
        return decode_request(payload)
    except PayloadError as error:
        raise RequestError(str(error)) from error


def checked_name(name: object, what: str) -> str:
    """The name itself. Raises RequestError when it breaks the rule for names."""
    if not isinstance(name, str) or not is_name(name):
        raise RequestError(f"{what}: {NAME_RULE}")
    return name


def encode_pull_answer(pull: Pull) -> list[bytes]:
    """The answer's payload in parts, so that records are copied once only."""
    return encode_answer(pull.ack_codes, pull.piece_count, pull.pieces)
