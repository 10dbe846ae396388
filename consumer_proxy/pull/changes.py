"""Waiting pulls after a change of the configuration: those that it refuses, or whose topics it changes, wait no longer."""

from collections.abc import Callable, Set
from typing import Any

from common.clock import Clock
from common.contract import Code
from consumer_proxy.admission.admission import PullAdmission
from consumer_proxy.errors import Refused
from consumer_proxy.pull.open_pull import OpenPull
from consumer_proxy.sources.base import Source

AT_ONCE, PAUSE_S = 50, 0.002
"""Pulls that are looked at without a pause. So 10,000 take about a second, and calls wait for milliseconds."""


class PermissionChanges:
    """
    Args:
        later: called as (seconds, function, *arguments) to have the function called after that time.
        waiting: the pulls that wait for the source.
    """

    def __init__(
        self, admission: PullAdmission, source: Source, clock: Clock, later: Callable[..., Any], waiting: Set[OpenPull]
    ) -> None:
        self._admission, self._source, self._clock, self._later = admission, source, clock, later
        self._waiting = waiting
        self._is_following = False

    def follow(self) -> None:
        """Look at all pulls that wait. The source answers an ended one with what it has; it is checked again then."""
        if not self._is_following:
            self._is_following = True
            self._later(0, self._follow, list(self._waiting), self._admission.generation)

    def _follow(self, left: list[OpenPull], generation: int) -> None:
        for pull in left[-AT_ONCE:]:
            if pull.connection is not None and self._is_outdated(pull):
                self._source.cancel(pull.handle)
        del left[-AT_ONCE:]
        self._is_following = bool(left)
        if left:
            self._later(PAUSE_S, self._follow, left, generation)
        elif generation != self._admission.generation:
            self.follow()

    def refusal(self, pull: OpenPull) -> Refused | None:
        """Why a pull that was admitted is not answered with messages any more; None: it is.

        A credential that was valid until its end, and has ended since, does not fail its last call: that is answered
        without messages.
        """
        if pull.generation in (None, self._admission.generation):
            return None
        try:
            if pull.position_read is None:
                self._admission.admit(pull.call, pull.connection)
            else:
                principal = self._admission.principal(pull.call.credential, pull.connection)
                self._admission.check_group(principal, pull.call.group.decode())
                for topic in pull.position_read.topics:
                    self._admission.find_topic(principal, topic)
        except Refused as refused:
            if refused.code == Code.UNAUTHENTICATED and self._clock.now_ms() >= pull.expires_at_ms:
                return Refused(Code.OK, "")
            is_read = pull.position_read is not None  # a topic that is gone is told by its position
            return None if is_read and refused.code == Code.UNKNOWN_TOPIC else refused
        return None

    def _is_outdated(self, pull: OpenPull) -> bool:
        """Whether a pull waits in vain by the configuration now: it is refused, or its topics are others.

        What is found to be as before is not looked at again until the next change.
        """
        generation = self._admission.generation
        if self.refusal(pull) is not None:
            return True
        admitted = pull.admitted
        if admitted is not None and pull.generation != generation:
            found = self._admission.admit(pull.call, pull.connection)
            if (found.scope.head, found.told) != (admitted.scope.head, admitted.told):
                return True
        pull.generation = None if pull.generation is None else generation
        return False
