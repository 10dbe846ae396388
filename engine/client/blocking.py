"""One link to the broker that leads a group, for one thread: blocking, over plain sockets. Needs no gevent.

For processes that are not patched, such as the Kafka bridge. Proxies use MasterClient, which does not block their loop.
"""

from collections.abc import Sequence
from contextlib import suppress

from engine.client.admin import AdminClient
from engine.client.dial import Admits, Hello, admit_all, dial
from engine.link.codes import NOT_MASTER
from engine.link.errors import LinkError

CONNECT_S, ANSWER_S = 3.0, 30.0
Address = tuple[str, int]


class LeadingLink:
    """Connects at the first call, and again after an error.

    Args:
        addresses: of the group's brokers.
        answer_s: maximum wait for an answer; the link is closed after it, and the outcome of the request is unknown.
    """

    def __init__(
        self, addresses: Sequence[Address], key: bytes, role: str, admits: Admits = admit_all,
        answer_s: float = ANSWER_S,
    ) -> None:  # fmt: skip
        self._addresses, self._key, self._role, self._admits = tuple(addresses), key, role, admits
        self._answer_s = answer_s
        self._link: RoleLink | None = None

    @property
    def hello(self) -> Hello:
        """Greeting of the broker that leads. Connects if need be. Raises OSError, LinkError."""
        return self._connected().hello

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]:
        """Send one request and wait for (code, payload).

        Raises:
            OSError, LinkError: no broker leads, or the link broke. The request may have been served.
        """
        link = self._connected()
        try:
            code, answer = link.call(op, payload)
        except (OSError, LinkError):
            self.close()
            raise
        if code == NOT_MASTER:
            self.close()  # the next call finds the broker that leads
        return code, answer

    def close(self) -> None:
        """Close the link; the next call opens another one."""
        if self._link is not None:
            with suppress(OSError):
                self._link.close()
        self._link = None

    def _connected(self) -> "RoleLink":
        if self._link is None:
            self._link = self._dial()
        return self._link

    def _dial(self) -> "RoleLink":
        found: RoleLink | None = None
        faults: list[str] = []
        for address in self._addresses:
            try:
                link = RoleLink(address, self._key, self._role, self._answer_s)
            except (OSError, LinkError) as error:
                faults.append(f"{error}")
                continue
            refusal = self._admits(link.hello) if link.hello.leads else f"engine={address}: it does not lead its group"
            if refusal is not None or (found is not None and found.hello.term >= link.hello.term):
                link.close()
                faults += [refusal] if refusal is not None else []
                continue
            if found is not None:
                found.close()
            found = link
        if found is None:
            raise LinkError("; ".join(faults) or "no broker is known")
        return found


class RoleLink(AdminClient):
    """A link of another role than the administrator's; its requests are those of proxies."""

    def __init__(self, address: Address, key: bytes, role: str, answer_s: float) -> None:
        self._sock, self.hello = dial(address, key, role=role, timeout_s=CONNECT_S)
        self._sock.settimeout(answer_s)
        self._request_id = 0
