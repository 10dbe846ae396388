"""Reports of one broker over links that come and go: which of them still counts. Pure: the time is passed in."""

from common.cluster.reports import BrokerReport
from controller.group_controller import Heard

PAUSE_S_MIN, PAUSE_S_MAX = 0.01, 0.2


class Hearing:
    """
    Attributes:
        heard: the last report; None: there is none, or the link was lost and could not be opened again at once. A broker
            ends its links when its role changes; the port of one that has ended refuses within a round trip.
    """

    def __init__(self) -> None:
        self.heard: Heard | None = None
        self._has_reported = False
        self._begun_s = 0.0
        self._pause_s = PAUSE_S_MIN

    def begins(self, now_s: float) -> None:
        """A link is about to be opened."""
        self._begun_s = now_s

    def reported(self, report: BrokerReport, now_s: float) -> None:
        """A report has come over the open link."""
        self.heard, self._has_reported = Heard(report, now_s), True

    def ended(self, now_s: float) -> float:
        """The link has ended, or could not be opened; returns the pause before the next attempt.

        A link that has reported does not count as lost before the next attempt has failed, too.
        """
        if self._has_reported:
            self._has_reported, self._pause_s = False, PAUSE_S_MIN
            return max(0.0, self._begun_s + PAUSE_S_MIN - now_s)
        self.heard = None
        pause_s, self._pause_s = self._pause_s, min(PAUSE_S_MAX, self._pause_s * 2)
        return pause_s

    def lacks(self, version: int) -> bool:
        """Whether the broker is linked, and has not adopted that version of the record.

        It may have a higher one of a record that was lost.
        """
        return self._has_reported and self.heard is not None and self.heard.report.version != version
