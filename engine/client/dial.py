"""Opening a link: connect, HELLO, AUTH. Blocking in the calling greenlet (or thread, where sockets are not patched)."""

import hashlib
import hmac
import json
import socket
from dataclasses import dataclass
from types import ModuleType

from common.address import Address, connect
from engine.link import layout
from engine.link.errors import LinkError

ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Hello:
    """What the broker says of itself. Topic ids belong to `log_id`: with another one, all that were cached are void."""

    log_id: str
    broker_group: str


def dial(
    address: tuple[str, int], cluster_key: bytes, *, role: str, timeout_s: float = 3.0, sockets: ModuleType = socket
) -> tuple[socket.socket, Hello]:
    """A connected, authenticated socket and the broker's Hello.

    Args:
        sockets: the module `socket`, or gevent's where the process is not patched.
    Raises:
        OSError: not reachable, or closed in the middle. LinkError: it answered, but refused or was no engine of this version.
    """
    address = Address(*address)
    sock = connect(address, timeout_s, sockets)
    try:
        hello = json.loads(_ask(sock, layout.HELLO, json.dumps({"version": layout.VERSION, "role": role}).encode()))
        if hello.get("version") != layout.VERSION:
            raise LinkError(f"engine={address}: speaks link version {hello.get('version')}, not {layout.VERSION}")
        proof = hmac.new(cluster_key, layout.AUTH_CONTEXT + bytes.fromhex(hello["nonce"]), hashlib.sha256).digest()
        _ask(sock, layout.AUTH, proof)
        sock.settimeout(None)
        return sock, Hello(hello["log_id"], hello["broker_group"])
    except (ValueError, KeyError) as error:
        sock.close()
        raise LinkError(f"engine={address}: its greeting makes no sense: {error}") from error
    except BaseException:
        sock.close()
        raise


def _ask(sock, op: int, payload: bytes) -> bytes:
    sock.sendall(layout.frame(op, 0, payload))
    size, _, _, code, _, _ = layout.HEADER.unpack(_read(sock, layout.HEADER_SIZE))
    if not layout.HEADER_SIZE - 4 <= size <= ANSWER_BYTES_MAX:
        raise LinkError("the answer to the greeting is no link frame")
    answer = _read(sock, size + 4 - layout.HEADER_SIZE)
    if code != layout.OK:
        raise LinkError(answer.decode("utf-8", "replace") or f"refused with code {code}")
    return answer


def _read(sock, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed during the greeting; a wrong cluster key is answered so")
        data += chunk
    return bytes(data)
