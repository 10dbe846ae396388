"""The delivery path's bytes, native where it was built. PENSTOCK_PURE=1 forces the twins."""

import os

from consumer_proxy import acks_pure, deliver_pure

NATIVE = False
build_reply = deliver_pure.build_reply
plan_acks = acks_pure.plan_acks

if not os.environ.get("PENSTOCK_PURE"):
    try:
        from consumer_proxy._acks import plan_acks  # type: ignore[no-redef]
        from consumer_proxy._deliver import build_reply  # type: ignore[no-redef]

        NATIVE = True
    except ImportError:
        pass
