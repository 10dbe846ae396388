"""Selects the native forms of the clocks and of the sync thread, or their references."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.env", "_clock")
if NATIVE and not TYPE_CHECKING:
    from engine.env._clock import NodeClock
else:
    from engine.env.clock import NodeClock

if use_native("engine.env", "_sync") and not TYPE_CHECKING:
    from engine.env._sync import SyncThread
else:
    from engine.env.sync import SyncThread

__all__ = ["NATIVE", "NodeClock", "SyncThread"]
