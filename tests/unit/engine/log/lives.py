"""Random appends of all kinds to a log under test, and what it holds afterwards."""

from random import Random

from machine import Machine

from engine.errors import CorruptionError


def contents(machine: Machine, topic_id: int, queue: int) -> list[bytes | int]:
    """The queue's messages, and the offset after each gap."""
    offset, end = machine.log.bounds(topic_id, queue)
    found: list[bytes | int] = []
    while offset < end:
        try:
            pieces = machine.log.read(topic_id, queue, offset, 100, 1 << 20)
        except CorruptionError as gap:
            assert gap.next_offset is not None
            found.append(offset := gap.next_offset)
            continue
        for piece in pieces:
            found += machine.form.format.split_records(piece.records)
            offset = piece.first_offset + piece.count
    return found


def live(machine: Machine, random: Random, steps: int) -> None:
    """Appends of all kinds, over several segments."""
    for step in range(steps):
        kind = random.random()
        if kind < 0.1:
            machine.log.create_topics([(f"topic-{random.randrange(6)}", random.randint(1, 6))])
        elif kind < 0.25:
            machine.log.put_progress([(b"k%d" % random.randrange(9), random.randbytes(random.randrange(5)))])
        elif kind < 0.3:
            machine.log.raise_ends([(1, random.randrange(4), machine.log.bounds(1, 0)[1] + random.randrange(3))])
        else:
            topic = random.choice(machine.log.topics())
            bodies = [b"%d." % step + bytes(random.randrange(300)) for _ in range(random.randint(1, 4))]
            machine.append(topic.id, random.randrange(topic.queues), *bodies)
