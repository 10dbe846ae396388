"""One group as a controller sees it over time. Pure: records, registrations, reports and the time are passed in.

`decide` judges one moment. This adds what needs a past: how long a version has been in force, how old a report is, which
slaves rest after a failed join, what was said last, and whether the store was put back from an older copy.
"""

from collections.abc import Mapping
from typing import NamedTuple

from common.cluster.coordination import Registration, VersionedRecord
from common.cluster.group_record import GroupRecord
from common.cluster.reports import BrokerReport, BrokerView
from controller.decision import Decision, decide
from controller.join_rests import JoinRests

REPORT_S_MAX = 0.9
"""A broker whose last report is older is not reached. It sends one every 100 ms."""


class Heard(NamedTuple):
    """The last report over a link that counts as open. `at_s`: when it came, monotonic."""

    report: BrokerReport
    at_s: float


class Step(NamedTuple):
    """
    Attributes:
        record: to be written in place of `version`, and of no other; None: leave it.
        sentence: why the group has no master that can acknowledge; "" when it has one.
        is_news: whether the sentence is another one than at the last step.
    """

    record: GroupRecord | None
    version: int
    sentence: str = ""
    is_news: bool = False


class GroupController:
    """
    Attributes:
        version, record: of the group, as seen last; 0 and None: it has no record.
        sentence: of the last step.
    """

    def __init__(self, now_s: float) -> None:
        self.version = 0
        self.record: GroupRecord | None = None
        self.sentence = ""
        self._begun_s = self._seen_s = now_s
        self._has_heard_all = False
        self._newest: VersionedRecord | None = None
        self._taken_back: VersionedRecord | None = None  # a later record than the present one was in force
        self._rests = JoinRests()

    def seen(self, found: VersionedRecord | None, now_s: float) -> None:
        """The record was read or written; None: there is none."""
        version, record = (found.version, found.record) if found is not None else (0, None)
        if (version, record) != (self.version, self.record):
            self._rests.changed(self.record, record, now_s)
            self.version, self.record, self._seen_s = version, record, now_s
        if found is not None and found != self._newest:
            known, self._newest = self._newest, found
            is_older = known is not None and (found.record.epoch, version) < (known.record.epoch, known.version)
            self._taken_back = known if is_older else None

    def decide(self, brokers: Mapping[str, Registration], heard: Mapping[str, Heard], now_s: float) -> Step:
        """The next step of the elected controller.

        Args:
            brokers: that are registered.
            heard: their last reports. One whose link is closed is not in it.
        """
        self._rests.restarted({name: each.incarnation for name, each in brokers.items()})
        views = {name: BrokerView(each.incarnation, _fresh(heard.get(name), now_s)) for name, each in brokers.items()}
        if self._is_beginning(views, now_s):
            return Step(None, self.version)
        found = self._held() or decide(
            self.version, self.record, views, age_s=now_s - self._seen_s, resting=self._rests.resting(now_s)
        )
        is_news, self.sentence = found.sentence != self.sentence, found.sentence
        return Step(found.record, self.version, found.sentence, is_news)

    def _held(self) -> Decision | None:
        """Nothing by a record from an older copy of the store, until an operator has written another one.

        What it says of the set may be long past: its members may lack what a later set has acknowledged.
        """
        if self.record is None or self._taken_back is None:
            return None
        later = self._taken_back.record
        return Decision(
            sentence=f"the record of the group is an older one (epoch {self.record.epoch}, version {self.version}) than was in "
            f"force (epoch {later.epoch}, version {self._taken_back.version}, master {later.master}): the store was put "
            f"back from an older copy: make {later.master} master with `penstock broker switch --to {later.master} --force`"
        )

    def _is_beginning(self, views: Mapping[str, BrokerView], now_s: float) -> bool:
        """Whether the first reports may still be on their way, so that a broker only seems to be away."""
        if not self._has_heard_all:
            heard_all = all(view.report is not None for view in views.values())
            self._has_heard_all = heard_all or now_s - self._begun_s > REPORT_S_MAX
        return not self._has_heard_all


def _fresh(heard: Heard | None, now_s: float) -> BrokerReport | None:
    return heard.report if heard is not None and now_s - heard.at_s <= REPORT_S_MAX else None
