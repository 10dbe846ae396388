"""The fields of a pull as plain values: made once per call by `consumer_proxy.pull.native.read_call`."""

from typing import NamedTuple

from engine.link.acknowledgement import NO_ACKS

NO_RANGES = NO_ACKS.encoded


class Call(NamedTuple):
    """One scanned pull. Names are the bytes of the frame, checked to be valid UTF-8 unless `fault` says otherwise."""

    seqid: int
    fault: int  # common.wire.faults.CallFault; when not 0, only seqid and the number of acks may be used
    credential: bytes  # bytes of the Credential's fields: equal for every call that reuses the credential
    group: bytes
    topics: (
        bytes  # their names as in the frame, each after its u32 size; empty: the topics that the group subscribes to
    )
    positions: int  # number of positions; decode the frame to have them
    lists_topics: bool  # asks for names of topics; decode the frame to have the one after which they begin
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int  # -1: unset
    acks: int
    ranges: bytes  # the encoded form of engine.link.acknowledgement.AckRanges
    runs: bytes  # reply_format.RUN: the answer to each ack

    def topic_names(self) -> list[str]:
        """The topics' names. Verdicts are remembered by `topics`, so each list of topics is decoded once."""
        names, at = [], 0
        while at < len(self.topics):
            end = at + 4 + int.from_bytes(self.topics[at : at + 4])
            names.append(self.topics[at + 4 : end].decode())
            at = end
        return names
