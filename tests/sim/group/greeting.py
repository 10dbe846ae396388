"""Opening of a link from a simulated process: dial, HELLO, AUTH, as `engine.client.dial` does it over a socket."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.client.dial import Hello, greeting_of, parse_hello
from engine.link import layout
from engine.link.proof import NONCE_SIZE, client_proof, engine_proof, is_proof, transcript
from engine.ops.roles import LinkKeys
from tests.sim.group.network import DIAL_MS, End, parsed

if TYPE_CHECKING:
    from tests.sim.group.process import Process

KEY = b"k" * 32
KEYS = LinkKeys(KEY, b"a" * 32)
Opened = Callable[[End, Hello], None]


class Greeting:
    """One attempt. Exactly one of `opened` and `failed` is called, unless the process ends or it is given up.

    Args:
        target: name of the process.
    """

    def __init__(
        self,
        process: "Process",
        target: str,
        role: str,
        opened: Opened,
        failed: Callable[[], None],
        *,
        name: str = "",
        lane: str = "",
    ) -> None:
        self._process, self._opened, self._failed = process, opened, failed
        nonce = process.world.random_of(f"nonce-{process.name}-{process.world.now_ms}").randbytes(NONCE_SIZE)
        self._question = greeting_of(role, nonce, name=name, lane=lane)
        self._end: End | None = None
        self._answer = b""
        self._is_done = False
        process.network.dial(process, target, self._on_open, self._fail)
        process.later(DIAL_MS, self._fail)

    def give_up(self) -> None:
        """Neither is called from now on."""
        self._is_done = True
        if self._end is not None:
            self._end.close()

    def _on_open(self, end: End) -> None:
        if self._is_done:
            end.close()
            return
        self._end = end
        end.on_frame, end.on_closed = self._on_frame, self._fail
        end.send(layout.frame(layout.HELLO, 0, self._question))

    def _on_frame(self, frame: bytes) -> None:
        op, _, code, payload = parsed(frame)
        assert self._end is not None
        if code != layout.OK:
            self._fail()
        elif op == layout.HELLO:
            self._answer = payload
            self._end.send(layout.frame(layout.AUTH, 0, client_proof(KEY, transcript(self._question, payload))))
        else:
            assert op == layout.AUTH and is_proof(engine_proof(KEY, transcript(self._question, self._answer)), payload)
            self._is_done = True
            self._opened(self._end, parse_hello(json.loads(self._answer)))

    def _fail(self) -> None:
        if not self._is_done:
            self.give_up()
            self._failed()
