"""Selects the native or the reference form of the parts of PULL that repeat."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.link", "_pull_parts")
if NATIVE and not TYPE_CHECKING:
    from engine.link._pull_parts import leases_of, read_acks, topics_end
else:
    from engine.link.pull_parts import leases_of, read_acks, topics_end

__all__ = ["NATIVE", "leases_of", "read_acks", "topics_end"]
