"""REPLY, FORWARD, LISTEN, FORWARDED, OUTCOME: fixed parts of their payloads (docs/design/0013-request-reply.md)."""

import struct

FORWARD_HEAD = struct.Struct("<IHxx")
"""Number ‖ code; the reply token and the reply follow."""

FORWARDED_BODY = struct.Struct("<IH")
"""Number ‖ code."""

INSTANCE = struct.Struct("<Q")
"""Body of LISTEN: the proxy process that waits for replies."""
