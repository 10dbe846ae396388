"""Selects the native form of the clocks, or its reference."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.env", "_clock")
if NATIVE and not TYPE_CHECKING:
    from engine.env._clock import NodeClock
else:
    from engine.env.clock import NodeClock

__all__ = ["NATIVE", "NodeClock"]
