"""Faults of a nemesis run. Each one strikes, sees its effect, lasts, is healed, and says what its effect was.

A fault without a visible effect raises AssertionError: a run with it would prove nothing.
"""

import errno
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from common.cluster.group_record import GroupState
from tests.fault.cuts import CASES, LEAVES, NOTHING, SWITCH, CutCase, Roles
from tests.fault.nemesis.site import CONTROLLERS, Site
from tests.services.failing_disk import ALLOCATE
from tests.waiting import until

SESSION_S = 4.0
"""Longer than a session of ZooKeeper and all time-outs."""
CUT = "cut: "
HOUR_MS = 3_600_000


class Fault(NamedTuple):
    """
    Attributes:
        act: does all of it, and returns its effect.
        gap_s_max: longest time without an acknowledged message; 0: sends have to wait for the healing.
    """

    name: str
    act: Callable[[Site], str]
    gap_s_max: float


def cut_name(case: CutCase) -> str:
    return f"{CUT}{case.name}"


def faults(brokers: int) -> list[Fault]:
    """All kinds, once each."""
    found = [
        Fault("kill the master", kill_master, 2.5),
        Fault("kill a slave", kill_slave, 2.5),
        Fault("pause the master", pause_master, 2.5),
        Fault("pause a slave", pause_slave, 2.5),
        Fault("kill all brokers", kill_all, 0),
        Fault("interrupt a join", interrupt_join, 2.5),
        Fault("planned switch", planned_switch, 2.5),
        Fault("slow link of the master", slow_master, 0),
        Fault("slow link of a slave", slow_slave, 2.5),
        Fault("full disk of the master", full_master, 0),
        Fault("full disk of a slave", full_slave, 2.5),
        Fault("power cut of the master", cut_master, 2.5),
        Fault("power cut of a slave", cut_slave, 2.5),
        Fault("power cut of a lone master", cut_lone_master, 0),
        Fault("power cut of all brokers", cut_all, 0),
        Fault("clock of the master ahead", lambda site: step_clock(site, is_master=True, is_ahead=True), 2.5),
        Fault("clock of the master behind", lambda site: step_clock(site, is_master=True, is_ahead=False), 2.5),
        Fault("clock of a slave ahead", lambda site: step_clock(site, is_master=False, is_ahead=True), 2.5),
        Fault("ZooKeeper killed", kill_zookeeper, 2.5),
        Fault("ZooKeeper paused", pause_zookeeper, 2.5),
        Fault("ZooKeeper and the master killed", kill_master_without_zookeeper, 0),
        Fault("elected controller killed", kill_controller, 2.5),
    ]
    if brokers > 2:
        found.append(Fault("kill two brokers", kill_two, 0))
    return found + [
        Fault(
            f"cut: {case.name}", lambda site, case=case: cut_links(site, case), 1.5 if case.effect == NOTHING else 2.5
        )
        for case in CASES
    ]


def _new_master(site: Site, old: str) -> str:
    return f"{site.until_record(lambda record: record.master != old, 'another master').master} is master"


def _left(site: Site, slave: str, deadline_s: float = 20) -> str:
    site.until_record(lambda record: slave not in record.in_sync, f"{slave} to leave the set", deadline_s)
    return f"{slave} left the set"


def _sends_go_on(site: Site) -> None:
    site.load.wait_more(50)


# -- processes


def kill_master(site: Site) -> str:
    master = site.roles.master
    site.group.kill(master)
    effect = _new_master(site, master)
    _sends_go_on(site)
    site.start_again(master)
    return effect


def kill_slave(site: Site) -> str:
    slave = site.roles.slave
    site.group.kill(slave)
    effect = _left(site, slave)
    _sends_go_on(site)
    site.start_again(slave)
    return effect


def kill_two(site: Site) -> str:
    roles = site.roles
    for name in (roles.master, roles.slave):
        site.group.kill(name)
    effect = _new_master(site, roles.master)
    site.start_again(roles.master, roles.slave)
    return effect


def kill_all(site: Site) -> str:
    epoch = site.group.record.epoch
    for name in site.brokers:
        site.group.kill(name)
    site.start_again(*site.brokers)
    record = site.until_record(lambda record: record.epoch > epoch, "another epoch")
    return record.reason


def pause_master(site: Site) -> str:
    master = site.roles.master
    site.group.kill(master, signal.SIGSTOP)
    try:
        effect = _new_master(site, master)
        _sends_go_on(site)
        site.hold(0, 4)
    finally:
        site.group.kill(master, signal.SIGCONT)
    return effect


def pause_slave(site: Site) -> str:
    slave = site.roles.slave
    site.group.kill(slave, signal.SIGSTOP)
    try:
        effect = _left(site, slave)
        _sends_go_on(site)
        site.hold(0, 4)
    finally:
        site.group.kill(slave, signal.SIGCONT)
    return effect


def interrupt_join(site: Site) -> str:
    """A slave is stopped while it joins, so it does not close the gap, and then until an only slave counts as gone."""
    slave = site.roles.slave
    site.group.kill(slave)
    _left(site, slave)
    site.start_again(slave)
    for _ in range(20):
        site.until_record(lambda record: slave in record.joining, f"{slave} to join", 60)
        site.group.kill(slave, signal.SIGSTOP)
        try:
            record = site.until_record(lambda record: slave not in record.joining, "the end of the join")
            if slave not in record.in_sync:
                if len(site.brokers) == 2:
                    site.until_record(
                        lambda record: record.state is GroupState.SINGLE_MASTER, "a master without a slave"
                    )
                return f"{record.state.value}: {record.reason}"
            _left(site, slave)  # it had joined before it stopped
        finally:
            site.group.kill(slave, signal.SIGCONT)
    raise AssertionError("no join was interrupted")


def planned_switch(site: Site) -> str:
    master = site.roles.master
    site.group.switch()
    return _new_master(site, master)


def kill_controller(site: Site) -> str:
    elected = until(site.elected, "an elected controller", 20)
    site.group.kill(elected)
    site.group.processes[elected].end()
    other = until(lambda: (found := site.elected()) != elected and found, "another one to be elected", 20)
    site.start_again(elected)
    return f"{other} is elected"


# -- ZooKeeper


def _no_controller(site: Site) -> None:
    until(lambda: not any(site.metric(each, "penstock_controller_elected") for each in CONTROLLERS), "its loss", 10)


def kill_zookeeper(site: Site) -> str:
    return _without_zookeeper(site, site.zookeeper.stop, site.zookeeper.start)


def pause_zookeeper(site: Site) -> str:
    return _without_zookeeper(
        site, lambda: site.zookeeper.kill(signal.SIGSTOP), lambda: site.zookeeper.kill(signal.SIGCONT)
    )


def _without_zookeeper(site: Site, stop: Callable[[], None], start: Callable[[], None]) -> str:
    master, began_s = site.roles.master, time.monotonic()
    stop()
    try:
        _no_controller(site)
        until(lambda: time.monotonic() > began_s + SESSION_S, "its time", SESSION_S + 1)
        _sends_go_on(site)
    finally:
        start()
    told = until(site.told, "ZooKeeper to answer", 30)
    assert told.record.master == master
    return "no controller is elected, sends go on"


def kill_master_without_zookeeper(site: Site) -> str:
    """Nothing can decide: sends wait or fail until ZooKeeper is back."""
    master = site.roles.master
    site.zookeeper.stop()
    try:
        _no_controller(site)
        site.group.kill(master)
        since = site.load.acknowledged
        site.hold(2, 3)
        assert site.load.acknowledged - since < 200, "sends went on without a master"
    finally:
        site.zookeeper.start()
    effect = site.until_record(lambda record: record.master != master, "another master", 30)
    site.start_again(master)
    return f"no send until ZooKeeper is back; {effect.master} is master"


# -- links


def cut_links(site: Site, case: CutCase) -> str:
    roles: Roles = site.roles
    began_s = time.monotonic()
    with site.network.cut(*case.pairs(roles)) as cut:
        if case.effect == SWITCH:
            effect = _new_master(site, roles.master)
        elif case.effect == LEAVES:
            effect = _left(site, roles.slave)
        else:
            until(lambda: time.monotonic() > began_s + SESSION_S, "its time", SESSION_S + 1)
            effect = "the same master"
        _sends_go_on(site)
        site.hold(0, 2)
        if case.effect == NOTHING:
            # A slave may leave the set on a machine that is too busy.
            assert (told := site.told()) is None or told.record.master == roles.master, told
        assert cut.dropped > 0, "nothing was sent over this link"
    return f"{effect}, {cut.dropped} packets dropped"


def slow_master(site: Site) -> str:
    return _slow(site, site.roles.master, 2000)


def slow_slave(site: Site) -> str:
    return _slow(site, site.roles.slave, 64)


def _slow(site: Site, host: str, kbit_s: int) -> str:
    with site.network.slow(host, kbit_s) as link:
        site.hold(2, 5)
        until(lambda: link.delayed > 100, "packets wait", 10)
    return f"{link.delayed} packets of {host} had to wait"


# -- disks


def full_master(site: Site) -> str:
    """Its disk has no room for another segment. With less than its reserve it would delete old messages."""
    master = site.roles.master
    refused, disk = len(site.load.refused), site.failing[master]
    with disk.failing(ALLOCATE, "/log/", errno.ENOSPC):
        until(lambda: len(site.load.refused) > refused + 20, "the current segment to be full", 60)
        site.hold(0, 2)
        assert disk.failed > 0 and site.group.master == master
    return f"{len(site.load.refused) - refused} messages refused"


def full_slave(site: Site) -> str:
    slave = site.roles.slave
    site.disks[slave].fill()
    try:
        effect = _left(site, slave, 60)  # it has to need another segment
        _sends_go_on(site)
    finally:
        site.disks[slave].empty()
    return effect


def _cut_power(site: Site, *names: str) -> None:
    """The disks first, then the processes, and the disks again."""
    keeps_log = site.chance.random() < 0.2
    for name in names:
        site.disks[name].cut(keeps_log)
    for name in names:
        site.group.kill(name)
    for name in names:
        site.group.processes[name].end()


def _power_on(site: Site, *names: str) -> None:
    for name in names:
        site.disks[name].power_on()
    site.start_again(*names)


def cut_master(site: Site) -> str:
    master = site.roles.master
    _cut_power(site, master)
    effect = _new_master(site, master)
    _sends_go_on(site)
    _power_on(site, master)
    return f"{site.disks[master].kind}: {effect}"


def cut_slave(site: Site) -> str:
    slave = site.roles.slave
    _cut_power(site, slave)
    effect = _left(site, slave)
    _sends_go_on(site)
    _power_on(site, slave)
    return f"{site.disks[slave].kind}: {effect}"


def cut_lone_master(site: Site) -> str:
    """Everything that a lone master has acknowledged is on its disk."""
    roles = site.roles
    others = [name for name in site.brokers if name != roles.master]
    for name in others:
        site.group.kill(name)
    site.until_record(lambda record: list(record.in_sync) == [roles.master], "a lone master")
    site.load.wait_more(500)
    epoch = site.group.record.epoch
    _cut_power(site, roles.master)
    _power_on(site, roles.master)
    site.until_record(lambda record: record.epoch > epoch, "the master under another epoch", 60)
    site.load.wait_more(50)
    site.start_again(*others)
    return f"{site.disks[roles.master].kind}: {roles.master} goes on with its log"


def cut_all(site: Site) -> str:
    epoch, began_s = site.group.record.epoch, time.monotonic()
    _cut_power(site, *site.brokers)
    site.cut_s.append((began_s, time.monotonic()))
    order = site.chance.sample(site.brokers, len(site.brokers))
    _power_on(site, *order)
    return site.until_record(lambda record: record.epoch > epoch, "another epoch", 60).reason


# -- clocks


def step_clock(site: Site, *, is_master: bool, is_ahead: bool) -> str:
    master, slave, *_ = site.roles
    name = master if is_master else slave
    # A delay counts from the master's clock: what is sent while it is ahead comes that much later.
    step_ms = site.chance.choice([5_000, 15_000] if is_master and is_ahead else [15_000, 600_000, HOUR_MS])
    step_ms *= 1 if is_ahead else -1
    began_ms = time.time_ns() // 1_000_000
    site.clocks[name].step(step_ms)
    try:
        site.hold(2, 4)
        seen_ms = site.clock_ms(name)
        assert abs(seen_ms - step_ms) < 3000, f"its clock is off by {seen_ms} ms"
        assert site.group.master == master, "a wrong clock is no reason for a switch"
    finally:
        site.clocks[name].step(0)
        if is_master:
            site.stepped_ms.append((began_ms, time.time_ns() // 1_000_000))
    return f"the clock of {name} is off by {step_ms / 1000:.0f} s"
