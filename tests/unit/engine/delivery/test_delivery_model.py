"""A random life of one group against a model that remembers every message: nothing lost, nothing in two hands, nothing buried that
was not rejected or out of attempts, and everything that was."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from engine.delivery import dead_letter
from engine.link.acknowledgement import DONE, EXTEND, REJECT, RELEASE, RETRY
from engine.link.codes import OK
from engine.log.format import whole_records
from tests.unit.engine.delivery._world import FORMS, World

QUEUES = 2
INVISIBLE_MS = 5_000
ATTEMPTS_MAX = 3


class DeliveryModel(RuleBasedStateMachine):
    form = FORMS[0]
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.form, in_flight_max=40, ranges_max=12, quantum_bytes=200)
        self.topic = self.world.topic("orders", QUEUES)
        self.stored = [0] * QUEUES
        self.world.policies.set(attempts_max=ATTEMPTS_MAX)
        self.done: set[tuple[int, int]] = set()  # acknowledged or buried
        self.dead: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int]] = set()  # by a verdict
        self.letters_read = 0
        self.holder: dict[tuple[int, int], tuple[int, int]] = {}  # message -> (lease, held until)
        self.attempts: dict[tuple[int, int], int] = {}
        self.unsure: set[tuple[int, int]] = set()  # whose last holder the log may or may not know
        self.released: set[tuple[tuple[int, int], int]] = set()  # (message, lease) that no client has seen
        self.restarts = 0
        self.paused = False

    @rule()
    def pause_or_resume(self):
        self.paused = not self.paused
        self.world.policies.set(paused=self.paused)

    @rule(queue=st.integers(0, QUEUES - 1), count=st.integers(1, 20))
    def store(self, queue, count):
        self.world.store(self.topic, count, queue=queue)
        self.stored[queue] += count

    @rule(target=leases, most=st.integers(1, 30))
    def pull(self, most):
        pieces = self.world.give(topics=[("orders", QUEUES)], most=most, invisible_ms=INVISIBLE_MS)
        total = sum(piece.count for piece in pieces)
        assert total <= (0 if self.paused else most)
        for piece in pieces:
            if piece.attempt > 1:
                assert total <= (1 if piece.attempt == ATTEMPTS_MAX else max(1, most >> (piece.attempt - 1)))
        for piece in pieces:
            for offset in piece.offsets:
                self._given((piece.queue, offset), piece)
        return multiple(*((piece, self.restarts) for piece in pieces))

    def _given(self, message, piece) -> None:
        assert message not in self.done, "handed out again after it was acknowledged"
        _, until_ms = self.holder.get(message, (0, 0))
        assert until_ms <= self.world.now_ms, "in two hands at once"
        assert piece.attempt == self.attempts.get(message, 0) + 1 <= ATTEMPTS_MAX
        self.attempts[message] = piece.attempt
        self.unsure.discard(message)
        self.holder[message] = (piece.lease, self.world.now_ms + INVISIBLE_MS)

    @rule(
        lease=leases,
        part=st.tuples(st.integers(0, 30), st.integers(1, 30)),
        verdict=st.sampled_from([DONE, DONE, RETRY, EXTEND, REJECT, RELEASE]),
    )
    def acknowledge(self, lease, part, verdict):
        piece, born = lease
        first = min(part[0], piece.count - 1)
        count = min(part[1], piece.count - first)
        messages = [(piece.queue, piece.first + first + at) for at in range(count)]
        if any((message, piece.lease) in self.released for message in messages):
            return  # nobody acknowledges what nobody has seen
        for message in self.unsure.intersection(messages):
            if verdict == RELEASE or self.holder[message][0] not in (0, piece.lease):
                return
        (code,), _ = self.world.pull(acks=[piece.ack(first, count, verdict, 1_000)], most=0)
        mine = [message for message in messages if self._holds(message, piece.lease, born)]
        still = [message for message in mine if message not in self.done]
        if verdict == DONE:
            assert (code == OK) == all(message in mine or message in self.done for message in messages)
            self.done.update(mine)
        elif verdict == RELEASE:
            held = [message for message in still if self.holder.get(message, (0, 0))[0] == piece.lease]
            assert (code == OK) == (len(held) == len(messages))
            for message in held:
                self.released.add((message, piece.lease))
                self.attempts[message] -= 1
                self.holder[message] = (0, 0)
        else:
            assert (code == OK) == (len(still) == len(messages))
            for message in still:
                if verdict == REJECT or (verdict == RETRY and self.attempts[message] >= ATTEMPTS_MAX):
                    self.given_up.add(message)
                else:
                    self.holder[message] = (piece.lease, self.world.now_ms + 1_000)
                    self.unsure.discard(message)

    def _holds(self, message, lease, born) -> bool:
        holder = self.holder.get(message, (0, 0))[0]
        # Who held it last is unknown after a restart when nobody held it then.
        return holder == lease or (holder == 0 and born < self.restarts)

    @rule(lease=consumes(leases))
    def acknowledge_all(self, lease):
        self.acknowledge(lease, (0, 30), DONE)

    @rule(ms=st.sampled_from([10, 500, 1_500, 6_000]))
    def wait(self, ms):
        self.world.turn(ms)

    @rule()
    def restart_cleanly(self):
        self.world.delivery.write_progress()
        self.world.turn(1)
        self.world.restart()
        self.restarts += 1
        # Progress keeps leases that run; one that has ended is in it only while nothing else of its queue has changed.
        written_ms = self.world.now_ms - 1
        self.unsure.update(message for message, (_, until_ms) in self.holder.items() if until_ms <= written_ms)

    @invariant()
    def only_what_was_given_up_or_spent_is_buried_and_once(self):
        topic = self.world.log.topic("_dlq.g")
        if topic is None:
            return
        for piece in self.world.log.read(topic.id, 0, self.letters_read, 1_000, 1 << 20):
            for record in whole_records(piece.records):
                self._buried(dead_letter.parse(record).origin)
                self.letters_read += 1

    def _buried(self, origin) -> None:
        message = int(origin["queue"]), int(origin["offset"])
        assert message not in self.done
        spent = self.attempts[message] >= ATTEMPTS_MAX and self.holder[message][1] <= self.world.now_ms
        assert message in self.given_up or spent
        assert int(origin["attempts"]) == self.attempts[message]
        self.done.add(message)
        self.dead.add(message)

    @invariant()
    def whatever_was_given_up_is_buried(self):
        assert self.given_up <= self.dead

    @invariant()
    def progress_never_jumps_a_hole(self):
        for cursor in self.world.delivery.group("g").load_all():
            for offset in range(cursor.contiguous):
                assert (cursor.queue, offset) in self.done
            open_messages = {
                (cursor.queue, offset)
                for range_ in cursor.in_flight.ranges
                for offset in range(range_.first, range_.end)
            }
            assert not open_messages & self.done
            assert cursor.in_flight.messages == len(open_messages)
            withheld = [each for each in cursor.in_flight.ranges if each.is_withheld]
            assert cursor.in_flight.withheld == len(withheld)
            assert cursor.in_flight.withheld_messages == sum(each.end - each.first for each in withheld)
            assert not any(each.ready for each in withheld)

    def teardown(self):
        """However it went, waiting long enough and acknowledging delivers every message."""
        self.world.policies.set(paused=False)
        for _ in range(200):
            self.world.turn(INVISIBLE_MS * 8)
            pieces = self.world.give(topics=[("orders", QUEUES)], most=1_000)
            if not pieces:
                break
            self.world.pull(acks=[piece.ack() for piece in pieces], most=0)
            self.done.update((piece.queue, offset) for piece in pieces for offset in piece.offsets)
        self.only_what_was_given_up_or_spent_is_buried_and_once()
        assert self.done == {(queue, offset) for queue in range(QUEUES) for offset in range(self.stored[queue])}


class TwinModel(DeliveryModel):
    form = FORMS[-1]


EXAMPLES = int(os.environ.get("PENSTOCK_LIVES", "60"))
SETTINGS = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDeliveryModel = DeliveryModel.TestCase
TestTwinModel = TwinModel.TestCase
TestDeliveryModel.settings = TestTwinModel.settings = SETTINGS
