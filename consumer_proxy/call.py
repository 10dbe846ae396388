"""What a pull asks for, as plain values: made once a call by `consumer_proxy.native.read_call`."""

from typing import NamedTuple


class Call(NamedTuple):
    """One walked pull. Names are the bytes of the frame, known to be valid UTF-8 unless `fault` says otherwise."""

    seqid: int
    fault: int  # common.wire.faults.CallFault; when not 0, only seqid and the acks' number may be used
    credential: bytes  # of the Credential's fields: equal for every call that reuses one
    group: bytes
    topics: tuple[bytes, ...]  # empty: all that the group subscribes to
    positions: int  # how many the call carries; decode the frame to have them
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int  # -1: unset
    acks: int
    ranges: bytes  # ack ranges of the link's PULL, their u32 count in front
    runs: bytes  # layout.RUN: what answers each ack
