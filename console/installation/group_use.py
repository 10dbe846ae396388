"""Whether a group is pulled, by the engines' positions: one without a definition has no other trace."""

from console.installation.broker_queries import BrokerQueries


def use_of_group(queries: BrokerQueries, name: str) -> tuple[bool, list[str]]:
    """Whether an engine has a position of the group, and sentences about the engines that did not answer."""
    with queries.open() as opened:
        answer = queries.ask(opened, "lag", "queues", group=name)
    return bool(answer.rows), answer.faults
