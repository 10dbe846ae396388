"""Walker over Thrift calls: finds messages and acknowledgements in a frame, and all its faults, without decoding.

`walk_send`, `walk_pull` and `walk_header` take one frame (bytes, without the framing's length) and raise WireError.
calls.py documents the results, faults.py the answer to each fault. `NATIVE` tells whether the functions are native or
their references.
"""

from common.twins import use_native
from common.wire.faults import WireError

NATIVE = use_native("common.wire", "_native")
if NATIVE:
    from common.wire._native import murmur2, valid_name, walk_header, walk_pull, walk_send
else:
    from common.wire.walk import murmur2, valid_name, walk_header, walk_pull, walk_send

__all__ = ["NATIVE", "WireError", "murmur2", "valid_name", "walk_header", "walk_pull", "walk_send"]
