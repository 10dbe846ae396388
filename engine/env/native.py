"""Selects the native forms of the clocks, of durations and of the sync thread, or their references."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.env", "_clock", "_durations")
if NATIVE and not TYPE_CHECKING:
    from engine.env._clock import NodeClock
    from engine.env._durations import Durations
else:
    from engine.env.clock import NodeClock
    from engine.env.durations import Durations

if use_native("engine.env", "_sync") and not TYPE_CHECKING:
    from engine.env._sync import SyncThread
else:
    from engine.env.sync import SyncThread

__all__ = ["NATIVE", "Durations", "NodeClock", "SyncThread"]
