"""What a pull asks for, as plain values: made once a call by `consumer_proxy.pull.native.read_call`."""

from typing import NamedTuple


class Call(NamedTuple):
    """One walked pull. Names are the bytes of the frame, known to be valid UTF-8 unless `fault` says otherwise."""

    seqid: int
    fault: int  # common.wire.faults.CallFault; when not 0, only seqid and the acks' number may be used
    credential: bytes  # of the Credential's fields: equal for every call that reuses one
    group: bytes
    topics: bytes  # their names as they stand in the frame, each behind its u32 size; empty: all that the group subscribes to
    positions: int  # how many the call carries; decode the frame to have them
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int  # -1: unset
    acks: int
    ranges: bytes  # ack ranges of the link's PULL, their u32 count in front
    runs: bytes  # layout.RUN: what answers each ack

    def topic_names(self) -> list[str]:
        """The topics one by one. A call that names many is known by their bytes, so this is asked once and not each time."""
        names, at = [], 0
        while at < len(self.topics):
            end = at + 4 + int.from_bytes(self.topics[at : at + 4])
            names.append(self.topics[at + 4 : end].decode())
            at = end
        return names
