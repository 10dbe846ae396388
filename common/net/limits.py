"""Limits of one connection, and of all connections together."""

from dataclasses import dataclass

UNREAD_BYTES_MAX = 64 << 20
"""Output of one link that may leave and that its peer does not take. Above it the connection is closed: a peer asks for
more answers than it reads. Clients of proxies have one answer at a time.
"""


@dataclass(frozen=True)
class Limits:
    """Bounds that are checked before memory is allocated."""

    frame_bytes_max: int = 16_384_000
    """Maximum size of a frame: Apache Thrift's limit.

    More lets a client send frames that its own library could not read.
    """
    frame_bytes_untrusted_max: int = 65_536
    """Maximum size of a frame before the connection's first verified credential.

    Less rejects small batches of a new client.
    """
    connections_max: int = 20_000
    """Maximum number of connections, a quarter of it of those whose credential has not verified.

    Each idle one costs a file descriptor and less than 1 KiB.
    """
    process_bytes_max: int = 256 << 20
    """Maximum buffered input of all connections, a quarter of it of those whose credential has not verified.

    Above it, large frames wait in the kernel, unread.
    """
    output_bytes_max: int = 96 << 20
    """Maximum buffered output of all connections. Above half of it, clients that read slowly are disconnected sooner.

    Less makes large pulls wait for each other; more keeps more answers of slow readers.
    """
    read_deadline_s: float = 10.0
    """Time from the first byte of a frame to its last; a slower connection is closed."""
    greeting_deadline_s: float = 10.0
    """Time from accept, or from a refused credential, to a valid one, whatever else is sent meanwhile."""
    idle_deadline_s: float = 600.0
    """Time between two calls. Less saves descriptors but makes clients with connection pools reconnect."""
    write_deadline_s: float = 30.0
    """Time in which a client may take its answer more slowly than write_rate_min; then the connection is closed."""
    write_rate_min: int = 32_768
    """Minimum bytes/s at which an answer is read. Less serves slower lines; more frees memory sooner."""

    def faults(self) -> list[str]:
        """Return every violated rule, each with its option and range."""
        found = []
        if not 1024 <= self.frame_bytes_max <= 16_384_000:
            found.append("frame_bytes_max: 1024..16384000")
        if not 1024 <= self.frame_bytes_untrusted_max <= self.frame_bytes_max:
            found.append("frame_bytes_untrusted_max: 1024..frame_bytes_max")
        if self.connections_max < 1:
            found.append("connections_max: at least 1")
        if self.process_bytes_max < 2 * self.frame_bytes_max:
            found.append("process_bytes_max: at least twice frame_bytes_max")
        if self.output_bytes_max < 2 * self.frame_bytes_max:
            found.append("output_bytes_max: at least twice frame_bytes_max")
        if self.write_rate_min < 1:
            found.append("write_rate_min: at least 1")
        for name in ("read_deadline_s", "greeting_deadline_s", "idle_deadline_s", "write_deadline_s"):
            if getattr(self, name) <= 0:
                found.append(f"{name}: more than 0")
        return found
