"""Search for the last copied batch of each queue, in segments that a start replays by their index files.

An index lists control batches apart from others, and copied batches among all of their queue. So a start that does not
scan a segment looks from the queue's end back: at the header of each batch, up to a copied one, or to where the view
knows that the last one ends. A log without sources costs one look-up.
"""

from collections.abc import Callable

from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import BATCH_HEADER_SIZE, OFFSET_END
from engine.log.segment.index_file import load_index
from engine.log.segment.native import BatchReader
from engine.log.segment.recovery_scan import SegmentDamage, report
from engine.log.segment.segment import Segment, read_or_nothing
from engine.log.upkeep.recovered import Recovered
from engine.log.view import View
from engine.log.write.copied_state import (
    copied_state,
    is_copied,
    queue_of_batch,
    queues_with_sources,
    take_copied,
)


def doubtful_from(state: Recovered) -> int:
    """Position from which on copied batches do not count, as one before them may be lost.

    A power cut may take a batch and leave a later one that was not synced either. If that one counted, the copier would
    pass over the records of the lost one. What follows the damage is copied again instead. Damage in what was synced is
    a bad sector's, and takes its own records only.
    """
    return min((each.position for each in state.damage if each.position >= state.synced), default=OFFSET_END)


def take_scanned(view: View, state: Recovered, base: int, found: list[tuple[int, bytes]]) -> None:
    """Bring the view up to date with the copied batches of a scanned segment. Its damage is in the state already."""
    doubtful_at = doubtful_from(state) - base
    for at, batch in found:
        if at < doubtful_at:
            take_copied(view, batch)
        else:
            state.doubtful.add(queue_of_batch(batch))


def find_copied(
    view: View, batches: BatchReader, env: Env, state: Recovered, bases: list[int], open_at: Callable[[int], Segment]
) -> None:
    """Bring the view up to date with segments that were replayed by their index files. Blocks.

    What cannot be read is added to the state's damage.

    Args:
        bases: of these segments, in order; all others are in the view.
    """
    wanted = [(topic_id, queue) for _, topic_id, queue in queues_with_sources(view)]
    doubtful = doubtful_from(state)
    if any(base >= doubtful for base in bases):
        state.doubtful.update(wanted)
    for base in reversed([base for base in bases if base < doubtful]):
        if not wanted:
            break
        segment = open_at(base)
        try:
            segment.sealed = load_index(env, segment)
            wanted = [queue for queue in wanted if not _find(view, batches, segment, queue, state.damage)]
        except CorruptionError as error:  # it was sound a moment ago
            state.damage.append(report(segment, 0, 0, f"copied batches are not looked for: {error}"))
        finally:
            segment.close()


def _find(
    view: View, batches: BatchReader, segment: Segment, queue: tuple[int, int], damage: list[SegmentDamage]
) -> bool:
    """Whether the queue's last copied batch is known now."""
    known = copied_state(view, *queue)
    assert segment.sealed is not None
    for base_offset, at, size, count, _ in reversed(segment.sealed.entries(*queue)):
        if known is not None and base_offset + count <= known.end:
            return True
        head = read_or_nothing(segment, at, BATCH_HEADER_SIZE)
        if len(head) == BATCH_HEADER_SIZE and not is_copied(head):
            continue
        batch = read_or_nothing(segment, at, size)
        if batches.check(batch, 0, size, segment.base + at) != size:
            damage.append(report(segment, at, size, f"topic={queue[0]} queue={queue[1]}: may be a copied batch"))
            continue
        take_copied(view, batch)
        return True
    return False
