"""The walker: finds the messages and acknowledgements of a call in its bytes, and everything that is wrong with them, without decoding.

`walk_send`, `walk_pull` and `walk_header` take one frame (bytes, without the framing's length) and raise WireError; see calls.py for
what they return and faults.py for how each fault is answered. NATIVE says which twin is in use; PENSTOCK_PURE=1 forces the pure one.
"""

import os

from common.wire.faults import WireError

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("the pure twin was asked for")
    from common.wire._native import murmur2, valid_name, walk_header, walk_pull, walk_send

    NATIVE = True
except ImportError:
    from common.wire.walk import murmur2, valid_name, walk_header, walk_pull, walk_send

    NATIVE = False

__all__ = ["NATIVE", "WireError", "murmur2", "valid_name", "walk_header", "walk_pull", "walk_send"]
