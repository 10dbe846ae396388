"""Result of a recovery."""

from dataclasses import dataclass, field

from common.believed_time import BelievedTime
from engine.log.segment.id_time import IdTime
from engine.log.segment.last_batch import NO_BATCH, LastBatch
from engine.log.segment.native import IdWindow
from engine.log.segment.recovery_scan import SegmentDamage
from engine.log.segment.segment import Segment
from engine.log.types import QueueEnd


@dataclass
class Recovered:
    """Result of a recovery: the segment to continue in, and what the log needs to begin."""

    log_id: bytes
    epoch: int = 1
    next_topic_id: int = 1
    active: Segment | None = None
    next: Segment | None = None
    sealed: list[int] = field(default_factory=list)
    active_last: LastBatch = NO_BATCH
    bytes_scanned: int = 0
    damage: list[SegmentDamage] = field(default_factory=list)
    fired: list[tuple[int, int, int]] = field(default_factory=list)
    """(base of its segment, byte address, size) of scanned batches of fired timers that may be in no mark."""
    doubtful: set[tuple[int, int]] = field(default_factory=set)
    """(topic id, queue) of queues with copied batches that do not count: see engine.log.upkeep.copied_search."""
    active_ids: bytes = b""
    headers_lost: bool = False
    """Whether batches are lost of which no header tells the queue, and ends of queues have not been raised since."""
    raised: list[QueueEnd] = field(default_factory=list)
    """Ends of queues after a lost last batch, by its header. No record in the log has them."""
    is_full: bool = False
    """Whether there is no room for the rest of the active segment."""
    ids: IdWindow = field(init=False)
    id_time: IdTime = field(init=False)
    partial: set[int] = field(default_factory=set)
    """Bases of full segments of which the disk could read only a part."""
    waited: set[int] = field(default_factory=set)
    """Those of them for which the start has waited as long as it may."""
    synced: int = 0
    """Position below which everything was on the disk at the last checkpoint: no power cut takes that."""
    newest_ms: int = 0
    """Time that the last batch is stamped with."""
    time: BelievedTime = field(init=False)
    """The time by which messages grow old."""
