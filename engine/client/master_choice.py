"""Choice of a broker group's master among its brokers, from what they say of themselves. Pure: no link, no clock."""

from engine.client.dial import Hello

SEEK_S = 1.5
"""Time after the loss of a master in which requests wait for the next one. Longer delays the fallback."""
SWITCHED_S = SEEK_S + 0.25
"""Time in which what was sent to a master that is lost, or hangs, has been sent to the next one. Whoever waits for less
gives up messages that are about to be stored."""
KEEP_S = 10.0
"""Time without a master after which messages that were sent are given up. Their calls end before, by their deadlines."""
PAUSE_S_MAX = 0.2
"""Longest pause between two tries to connect to one broker."""


def leads_still(hello: Hello, present: Hello | None) -> bool:
    """Whether a broker that was dialled because it was the master may be given messages.

    Args:
        hello: its greeting on the new link.
        present: greeting of the present master; None: none is known.
    """
    return hello.leads and present is not None and hello.term >= present.term


class MasterChoice:
    """Brokers are numbers.

    A broker ends its clients' links when it begins or ceases to lead, so whether it leads holds while its link is open.
    A master that stays under a new epoch keeps them: a greeting may tell an earlier term.

    Attributes:
        master: the broker to use; None: none is known.
        term: greatest term that any broker has told.
    """

    def __init__(self) -> None:
        self.master: int | None = None
        self.term = 0
        self._leads: dict[int, int] = {}  # broker -> term

    def greeted(self, broker: int, hello: Hello) -> bool:
        """A broker's link is open. Returns whether the master is another one now, or the same one after a lost link.

        A present master stays until its link ends, or until another broker leads with a greater term.
        """
        self.term = max(self.term, hello.term)
        if not hello.leads or hello.term < self.term:
            self._leads.pop(broker, None)
            return False
        self._leads[broker] = hello.term
        if self.master is not None and hello.term <= self._leads[self.master]:
            return False
        self.master = broker
        return True

    def is_old(self, hello: Hello) -> bool:
        """Whether a broker says that it leads with a smaller term than has been told: it has to be greeted again.

        It was replaced, or it is the master of the newest record and had not adopted that record yet. Only in the first
        case does it end the link by itself.
        """
        return hello.leads and hello.term < self.term

    def ended(self, broker: int) -> bool:
        """A broker's link has ended, or it has said that it does not lead. Returns whether it was the master.

        Another broker that has said that it leads with the greatest term is the master then.
        """
        self._leads.pop(broker, None)
        if broker != self.master:
            return False
        self.master = next((each for each, term in self._leads.items() if term == self.term), None)
        return True
