"""Opens a link: connect, HELLO, AUTH. Blocks the calling greenlet, or the thread where sockets are not patched."""

import hashlib
import hmac
import json
import socket
from dataclasses import dataclass
from types import ModuleType

from common.address import Address, connect
from engine.link.codes import OK
from engine.link.errors import LinkError
from engine.link.frame import AUTH_CONTEXT, FRAME_REST_SIZE, HEADER, HEADER_SIZE, VERSION, frame
from engine.link.operations import AUTH, HELLO

ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Hello:
    """A broker's greeting. Topic ids belong to `log_id`: with another one, all cached ids are void."""

    log_id: str
    broker_group: str


def dial(
    address: tuple[str, int], cluster_key: bytes, *, role: str, timeout_s: float = 3.0, sockets: ModuleType = socket
) -> tuple[socket.socket, Hello]:
    """Open an authenticated link; returns its socket and the broker's Hello.

    Args:
        sockets: the module `socket`, or gevent's where the process is not patched.
    Raises:
        OSError: not reachable, or closed during the greeting.
        LinkError: the other end refused, or is not an engine of this version.
    """
    address = Address(*address)
    sock = connect(address, timeout_s, sockets)
    try:
        hello = json.loads(_ask(sock, HELLO, json.dumps({"version": VERSION, "role": role}).encode()))
        if hello.get("version") != VERSION:
            raise LinkError(f"engine={address}: link version {hello.get('version')}, this version needs {VERSION}")
        proof = hmac.new(cluster_key, AUTH_CONTEXT + bytes.fromhex(hello["nonce"]), hashlib.sha256).digest()
        _ask(sock, AUTH, proof)
        sock.settimeout(None)
        return sock, Hello(hello["log_id"], hello["broker_group"])
    except (ValueError, KeyError) as error:
        sock.close()
        raise LinkError(f"engine={address}: malformed greeting: {error}") from error
    except BaseException:
        sock.close()
        raise


def _ask(sock: socket.socket, op: int, payload: bytes) -> bytes:
    sock.sendall(frame(op, 0, payload))
    size, _, _, code, _, _ = HEADER.unpack(_read(sock, HEADER_SIZE))
    if not FRAME_REST_SIZE <= size <= ANSWER_BYTES_MAX:
        raise LinkError(
            f"the answer to the greeting is not a link frame: it says {size} bytes: at most {ANSWER_BYTES_MAX}"
        )
    answer = _read(sock, size + 4 - HEADER_SIZE)
    if code != OK:
        raise LinkError(answer.decode("utf-8", "replace") or f"refused with code {code}")
    return answer


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed during the greeting: check that both ends have the same cluster key")
        data += chunk
    return bytes(data)
