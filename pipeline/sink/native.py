"""Selects the native or the reference form of the sink's byte work."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("pipeline.sink", "_messages")
if NATIVE and not TYPE_CHECKING:
    from pipeline.sink._messages import encode_messages, read_results
else:
    from pipeline.sink.messages import encode_messages, read_results

__all__ = ["NATIVE", "encode_messages", "read_results"]
