"""Webhooks: one signed POST to a checked address, within 5 seconds, without redirects."""

import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import SplitResult, urlsplit

from common.networks import is_within
from console.errors import InvalidForm
from console.watching.errors import NoticeFailed

TOTAL_S_MAX = 5.0
NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("64:ff9b:1::/48", "fec0::/10")))
"""Networks of sites that Python calls global: locally chosen NAT64 prefixes (RFC 8215), site-local addresses (RFC 3879)."""
NAT64, EMBEDDED_IPV4 = ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96")
URL_CHARS_MAX = 500
LINE_BYTES_MAX = 1_000
Resolve = Callable[[str, int], list[str]]
Network = str


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises OSError."""
    return list(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


class WebhookSender:
    """
    Args:
        networks: networks that webhooks may go to although they are not public.
    """

    def __init__(self, networks: Sequence[Network] = (), find: Resolve = resolve) -> None:
        self._networks, self._find = tuple(networks), find

    def check(self, url: str) -> str:
        """The URL, where it can be a target. Its address is checked again at each use. Raises InvalidForm."""
        fault = "Use https://HOST/PATH or http://HOST/PATH, without a user name, up to 500 characters."
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidForm({"target": fault}) from error
        is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= URL_CHARS_MAX
        if (
            not is_plain
            or parts.scheme not in ("http", "https")
            or not parts.hostname
            or port == 0
            or "@" in parts.netloc
        ):
            raise InvalidForm({"target": fault})
        return url

    def send(self, url: str, secret: str, event: str, number: int, body: dict[str, Any]) -> None:
        """POST the body as JSON. Raises NoticeFailed."""
        end = time.monotonic() + TOTAL_S_MAX
        parts = urlsplit(url)
        try:
            with self._connect(parts, end) as connection:
                connection.sendall(signed_request(parts, secret, event, number, body, int(time.time())))
                status = _status(connection, end)
        except ssl.SSLError as error:
            raise NoticeFailed(f"TLS with {parts.hostname}: {error.reason or error}") from error
        except (OSError, UnicodeError) as error:
            raise NoticeFailed(f"{parts.hostname} does not answer: {_reason(error)}") from error
        if not 200 <= status < 300:
            raise NoticeFailed(f"{parts.hostname} answered with status {status}")

    def _connect(self, parts: SplitResult, end: float) -> socket.socket:
        """A connection to an address that was checked: a name that is resolved again could lead elsewhere."""
        host, is_tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        addresses = self._found(host, port, end)
        wrong = [each for each in addresses if not self._may_reach(each)]
        if wrong or not addresses:
            raise NoticeFailed(
                f"{host} is at {', '.join(wrong) or 'no address'}: webhooks go to public addresses, and to networks that "
                "--notify-networks names"
            )
        connection = socket.create_connection((addresses[0], port), timeout=_left_s(end))
        if is_tls:
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        return connection

    def _found(self, host: str, port: int, end: float) -> list[str]:
        """The addresses of a host. The system's resolver has time limits of its own, so it is asked beside this thread."""
        answers: SimpleQueue[list[str] | OSError | UnicodeError] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._find(host, port))
            except (OSError, UnicodeError) as error:
                answers.put(error)

        threading.Thread(target=ask, name="resolve", daemon=True).start()
        try:
            answer = answers.get(timeout=_left_s(end))
        except Empty:
            raise TimeoutError(f"its name was not resolved within {TOTAL_S_MAX:.0f} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _may_reach(self, address: str) -> bool:
        ip = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
            if inner is not None:
                return self._may_reach(str(inner))
            if ip in NAT64 or (ip in EMBEDDED_IPV4 and int(ip) > 1):
                return self._may_reach(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        if self._networks and is_within(f"{address}:0", self._networks):
            return True
        return ip.is_global and not ip.is_multicast and not any(ip in each for each in NOT_PUBLIC)


def signed_request(parts: SplitResult, secret: str, event: str, number: int, body: dict[str, Any], now_s: int) -> bytes:
    """The HTTP request. The signature covers the time, so that an old one can be told."""
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\nUser-Agent: penstock-console\r\n"
        f"Penstock-Event: {event}\r\nPenstock-Notice: {number}\r\nPenstock-Time: {now_s}\r\n"
        f"Penstock-Signature: v1={signature(secret, now_s, data)}\r\n\r\n"
    )
    return head.encode("ascii") + data


def signature(secret: str, time_s: int, body: bytes) -> str:
    """HMAC-SHA256 of `TIME.BODY` in hexadecimal digits."""
    return hmac.new(secret.encode(), f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()


def _status(connection: socket.socket, end: float) -> int:
    """The status of the answer, of which no more is read. Raises OSError, NoticeFailed."""
    line = b""
    while b"\n" not in line:
        connection.settimeout(_left_s(end))
        data = connection.recv(LINE_BYTES_MAX)
        line += data
        if not data or (len(line) > LINE_BYTES_MAX and b"\n" not in line):
            break
    words = line.split(b"\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise NoticeFailed("the answer is not HTTP")
    return int(words[1])


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _left_s(end: float) -> float:
    left_s = end - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(f"no answer within {TOTAL_S_MAX:.0f} s")
    return left_s
