"""Selected form of the operations' hot part: what holds the output of a master's clients."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.ops", "_output_hold")
if NATIVE and not TYPE_CHECKING:
    from engine.ops._output_hold import OutputHold
else:
    from engine.ops.output_hold import OutputHold

__all__ = ["NATIVE", "OutputHold"]
