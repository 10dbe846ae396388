"""Opens a link: connect, HELLO, AUTH with a proof by each end. Blocks the calling greenlet, or the thread where sockets are not patched."""

import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from common.address import Address, connect
from common.unpatched import UnpatchedSockets
from engine.link.codes import OK, UNAUTHENTICATED
from engine.link.errors import LinkError
from engine.link.frame import FRAME_REST_SIZE, HEADER, HEADER_SIZE, VERSION, frame
from engine.link.operations import AUTH, HELLO
from engine.link.proof import NONCE_SIZE, client_proof, engine_proof, is_proof, transcript

ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Hello:
    """A broker's greeting: which engine answers.

    Attributes:
        log_id: of its log.
        broker_group: its group, as its configuration names it.
        epoch: of its start: another value after each start, in no order. Topic ids belong to (log_id, epoch); with
            another pair all cached ids are void. Empty: an engine of an earlier version.
        end_position, durable_position: of its log at the greeting. A log that ends below a durable position that was
            seen before is an older copy. 0: an engine of an earlier version.
        leads: whether it is the master of its group. An engine without replicas always is.
        broker, master: its own name in the group, and the master's as far as it knows; empty without replicas.
        term: epoch of the group's record that it has adopted; 0 without replicas.
        by_cluster_key: roles of its group that it lets prove by the cluster key, which every proxy has.
    """

    log_id: str
    broker_group: str
    epoch: str = ""
    end_position: int = 0
    durable_position: int = 0
    leads: bool = True
    broker: str = ""
    master: str = ""
    term: int = 0
    by_cluster_key: tuple[str, ...] = ()


Admits = Callable[[Hello], str | None]
"""Checks the engine that has answered: why it must not be used, or None."""


def admit_all(hello: Hello) -> str | None:
    """Use any engine that has proven to know the cluster key."""
    return None


Keys = bytes | Sequence[bytes]
"""The key of a role, or several while a cluster changes: each is tried while the other end refuses those before it."""


class WrongKeyError(LinkError):
    """The other end has another key for this role."""


def dial(
    address: tuple[str, int], key: Keys, *, role: str, name: str = "", lane: str = "", timeout_s: float = 3.0,
    sockets: ModuleType | type[UnpatchedSockets] = socket,
) -> tuple[socket.socket, Hello]:  # fmt: skip
    """Open an authenticated link; returns its socket and the broker's Hello.

    Args:
        key: of the role; see `engine.ops.roles`.
        name: of this end, where the other has to tell several of one role apart.
        lane: the same for all links of one lane, and for no other: the engine closes the earlier one.
        sockets: as of `connect`.
    Raises:
        OSError: not reachable, or closed during the greeting.
        LinkError: the other end refused, is not an engine of this version, or does not know the key.
    """
    refusal: WrongKeyError | None = None
    for each in (key,) if isinstance(key, bytes) else key:
        try:
            return _dial(
                Address(*address),
                each,
                greeting_of(role, os.urandom(NONCE_SIZE), name=name, lane=lane),
                timeout_s,
                sockets,
            )
        except WrongKeyError as error:
            refusal = refusal or error
    raise refusal or LinkError("no key is given")


def _dial(
    address: Address, key: bytes, question: bytes, timeout_s: float, sockets: ModuleType | type[UnpatchedSockets]
) -> tuple[socket.socket, Hello]:
    sock = connect(address, timeout_s, sockets)
    try:
        answer = _ask(sock, HELLO, question)
        hello = json.loads(answer)
        if hello.get("version") != VERSION:
            raise LinkError(f"engine={address}: link version {hello.get('version')}, this version needs {VERSION}")
        greeting = transcript(question, answer)
        if not is_proof(engine_proof(key, greeting), _ask(sock, AUTH, client_proof(key, greeting))):
            raise LinkError(f"engine={address}: it does not prove that it knows the key: check who listens there")
        sock.settimeout(None)
        return sock, parse_hello(hello)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sock.close()
        raise LinkError(f"engine={address}: malformed greeting: {error}") from error
    except BaseException:
        sock.close()
        raise


def greet(address: tuple[str, int], *, role: str, timeout_s: float = 3.0) -> Hello:
    """What an engine tells every stranger. It has proved nothing. Raises OSError, LinkError."""
    with connect(Address(*address), timeout_s, socket) as sock:
        try:
            return parse_hello(json.loads(_ask(sock, HELLO, greeting_of(role, os.urandom(NONCE_SIZE)))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LinkError(f"engine={Address(*address)}: malformed greeting: {error}") from error


def greeting_of(role: str, nonce: bytes, *, name: str = "", lane: str = "") -> bytes:
    """HELLO's payload; see `dial`."""
    asked = {"version": VERSION, "role": role, "nonce": nonce.hex(), "name": name, "lane": lane}
    return json.dumps({field: value for field, value in asked.items() if value}).encode()


def parse_hello(answer: dict[str, Any]) -> Hello:
    """The fields of HELLO's answer. Raises ValueError, KeyError, TypeError."""
    return Hello(
        str(answer["log_id"]),
        str(answer["broker_group"]),
        str(answer.get("epoch", "")),
        int(answer.get("end_position", 0)),
        int(answer.get("durable_position", 0)),
        bool(answer.get("leads", True)),
        str(answer.get("broker", "")),
        str(answer.get("master", "")),
        int(answer.get("term", 0)),
        tuple(map(str, answer.get("by_cluster_key", ()))),
    )


def _ask(sock: socket.socket, op: int, payload: bytes) -> bytes:
    sock.sendall(frame(op, 0, payload))
    size, _, _, code, _, _ = HEADER.unpack(_read(sock, HEADER_SIZE))
    if not FRAME_REST_SIZE <= size <= ANSWER_BYTES_MAX:
        raise LinkError(
            f"the answer to the greeting is not a link frame: it says {size} bytes: at most {ANSWER_BYTES_MAX}"
        )
    answer = _read(sock, size + 4 - HEADER_SIZE)
    if code != OK:
        kind = WrongKeyError if code == UNAUTHENTICATED else LinkError
        raise kind(answer.decode("utf-8", "replace") or f"refused with code {code}")
    return answer


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed during the greeting: check that both ends have the same key")
        data += chunk
    return bytes(data)
