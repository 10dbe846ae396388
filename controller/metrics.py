"""The controller's page of metrics.

name | type, unit | what to do about it
penstock_controller_elected | 0 or 1 | the sum over all controllers is not 1 for long: look at the coordination
penstock_controller_contact_age_seconds | of the coordination's last answer | grows: it is away; groups keep their state
penstock_controller_groups | now | –
penstock_controller_group_state{group} | 0 no record, 1 SINGLE_MASTER, 2 ASYNC_…, 3 SEMI_…, 4 SYNC_… | below 4: a broker is away or slow
penstock_controller_group_epoch{group} | changes of master | rises: `penstock broker history` says why
penstock_controller_group_in_sync{group} | brokers | linked below registered: network, keys
penstock_controller_group_registered{group} | brokers | linked below registered: network, keys
penstock_controller_group_linked{group} | brokers | linked below registered: network, keys
penstock_controller_group_stuck{group} | 1: no master can acknowledge | the log of the elected controller says why
penstock_controller_changes_total{group} | records written by this process | rises steadily: a broker joins and fails again and again
"""

import math
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.cluster.coordination import Coordination
from common.cluster.group_record import GroupState
from controller.controller import Controller
from controller.group_worker import GroupWorker

_PREFIX = "penstock_controller_"
STATES = {state: number for number, state in enumerate(GroupState, 1)}


class ControllerMetrics:
    """A Prometheus collector over one controller. Its only label is the group."""

    def __init__(self, controller: Controller, coordination: Coordination) -> None:
        self._controller, self._coordination = controller, coordination

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        workers, is_elected = self._controller.workers, self._controller.is_elected
        age_s = self._coordination.contact_age_s()
        yield GaugeMetricFamily(_PREFIX + "elected", "whether this process decides", value=is_elected)
        yield GaugeMetricFamily(_PREFIX + "contact_age_seconds", "of the coordination", value=min(age_s, math.inf))
        yield GaugeMetricFamily(_PREFIX + "groups", "that are followed", value=len(workers))
        changes = CounterMetricFamily(_PREFIX + "changes", "records written", labels=["group"])
        gauges = {name: GaugeMetricFamily(_PREFIX + name, name.replace("_", " "), labels=["group"]) for name in _GAUGES}
        for group, worker in workers.items():
            changes.add_metric([group], worker.turns.changes)
            for name, value in _gauges(worker, is_elected).items():
                gauges[name].add_metric([group], value)
        yield changes
        yield from gauges.values()


_GAUGES = ("group_state", "group_epoch", "group_in_sync", "group_registered", "group_linked", "group_stuck")


def _gauges(worker: GroupWorker, is_elected: bool) -> dict[str, float]:
    record = worker.controller.record
    return {
        "group_state": STATES[record.state] if record is not None else 0,
        "group_epoch": record.epoch if record is not None else 0,
        "group_in_sync": len(record.in_sync) if record is not None else 0,
        "group_registered": worker.turns.registered,
        "group_linked": worker.turns.linked,
        "group_stuck": bool(worker.controller.sentence) and is_elected,
    }
