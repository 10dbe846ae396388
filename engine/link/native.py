"""Selects the native or the reference form of the work on bytes of PULL."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("engine.link", "_pull_parts")
if NATIVE and not TYPE_CHECKING:
    from engine.link._pull_parts import leases_of, leases_of_parts, split_request
else:
    from engine.link.pull_parts import leases_of, leases_of_parts, split_request

__all__ = ["NATIVE", "leases_of", "leases_of_parts", "split_request"]
