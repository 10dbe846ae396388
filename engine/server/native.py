"""Selects the native form of the link's connections, or its reference."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import gevent

from common.twins import use_native
from engine.server import serve as reference

# The native form appends through the native appender and no other.
NATIVE = use_native("engine.server", "_serve", requires=use_native("engine.log.write", "_append"))
if NATIVE and not TYPE_CHECKING:
    from engine.server import _serve as form
else:
    form = reference

__all__ = ["NATIVE", "call_each_turn", "form", "reference"]


def call_each_turn(call: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in each turn of the loop, after what may have written. Returns what stops it.

    With the native form it is also called at the end of each turn of its connections: what it sends leaves in that turn.
    """
    turns = gevent.get_hub().loop.prepare()
    turns.start(call)
    if NATIVE and not TYPE_CHECKING:
        from common.net._reactor import reactor

        reactor().call_each_turn(call)
    return turns.stop
