"""A master and a slave whose log gets the master's bytes."""

from random import Random

from lives import contents, live
from machine import Machine

from engine.log.upkeep.truncation import TruncationOrder, order_truncation

HEADER = 64


class Pair:
    """A master that serves, and a slave with nothing but the header of the master's first segment."""

    def __init__(self, form, master_env, slave_env, master: str = "/master", slave: str = "/slave") -> None:
        self.form = form
        self.master = Machine(form, master_env, master)
        slave_env.make_directory(f"{slave}/log")
        header = self.master.log.segments.active.header
        form.segment.create_segment(slave_env, f"{slave}/log", header).close()
        self.slave = Machine.__new__(Machine)
        self.slave.form, self.slave.env, self.slave.directory = form, slave_env, slave
        self.slave.config = self.master.config
        self.slave.open()

    def close(self) -> None:
        self.master.close()
        self.slave.close()

    def next_bytes(self, most: int) -> tuple[int, bytes]:
        """Position and bytes of what the slave lacks in its segment."""
        at = self.slave.log.end_position
        return at, self.master.log.raw.read(at, most)

    def follow(self, random: Random) -> None:
        """Ship all that the master has."""
        while self.slave.log.end_position != self.master.log.end_position:
            position, data = self.next_bytes(random.choice((1, 200, 3_000, 100_000)))
            if data:
                self.slave.log.follower.apply(position, data)
            else:
                self.slave.log.follower.begin_segment(self.master.log.raw.next_segment(position)[1])

    def part(self, random: Random) -> int:
        """Both have epoch 2; then each goes on alone, the slave in epoch 3. Returns the common position."""
        self.master.log.epochs.begin(2, 1, "a")
        live(self.master, random, 30)
        self.follow(random)
        common = self.slave.log.end_position
        live(self.master, random, random.randrange(1, 80))
        self.slave.log.epochs.begin(3, 2, "b")
        live(self.slave, random, random.randrange(80))
        return common

    def assert_equal(self) -> None:
        """The files, and what each log answers."""
        logs = self.master.log, self.slave.log
        for base in sorted({*logs[0].segments.sealed.bases, logs[0].segments.active.base}):
            files = [log.segments.at(base).file for log in logs]
            assert files[0].read_at(files[0].size(), 0) == files[1].read_at(files[1].size(), 0)
        assert logs[0].topics() == logs[1].topics()
        assert dict(logs[0].progress()) == dict(logs[1].progress())
        for topic in logs[0].topics():
            for queue in range(topic.queues):
                assert logs[0].bounds(topic.id, queue) == logs[1].bounds(topic.id, queue)
                assert contents(self.master, topic.id, queue) == contents(self.slave, topic.id, queue)


def cut(machine: Machine, position: int) -> None:
    """Truncate the log, and start again."""
    order = TruncationOrder(machine.log.log_id, machine.log.epoch, position)
    machine.close()
    order_truncation(machine.env, machine.directory, order)
    machine.open()
