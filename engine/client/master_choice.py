"""Choice of a broker group's master among its brokers, from what they say of themselves. Pure: no link, no clock."""

from engine.client.dial import Hello


class MasterChoice:
    """Brokers are numbers.

    A broker's link ends when it adopts a record with another epoch, so a greeting holds while its link is open.

    Attributes:
        master: the broker to use; None: none is known.
        term: greatest term that any broker has told. A broker that says it leads with a smaller one was replaced.
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

    def ended(self, broker: int) -> bool:
        """A broker's link has ended, or it has said that it does not lead. Returns whether it was the master.

        Another broker that has said that it leads with the greatest term is the master then.
        """
        self._leads.pop(broker, None)
        if broker != self.master:
            return False
        self.master = next((each for each, term in self._leads.items() if term == self.term), None)
        return True
