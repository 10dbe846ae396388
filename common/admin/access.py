"""Why an application may send to a topic or pull from it, or what it lacks: by the rules that proxies apply."""

from collections.abc import Sequence
from typing import NamedTuple

from common.config.definitions import DEAD_LETTERS, PULL_GROUP, PULL_TOPIC, SEND, ApplicationDefinition
from common.credential import Principal
from common.dead_letters import dead_letter_pattern, is_dead_letter_topic


class AccessCheck(NamedTuple):
    """One condition of a call.

    Attributes:
        grant: the pattern that allows it; empty: none does.
        remedy: options of `penstock app grant` that would allow it; empty: it is allowed, or no grant can allow it.
    """

    what: str
    is_allowed: bool
    grant: str
    remedy: str = ""


def of_send(app: ApplicationDefinition, topic: str) -> list[AccessCheck]:
    """The conditions of a send to a topic."""
    if is_dead_letter_topic(topic):
        return [*_key(app), AccessCheck(f"send to {topic}: clients cannot send to dead letters", False, "")]
    is_allowed = _principal(app).may_send(topic)
    return [*_key(app), _by_grant(f"send to topic {topic}", is_allowed, app.patterns(SEND), topic, f"--send '{topic}'")]


def of_pull(app: ApplicationDefinition, topic: str, group: str | None) -> list[AccessCheck]:
    """The conditions of a pull from a topic as a group; None: those of the topic alone."""
    principal, found = _principal(app), _key(app)
    if is_dead_letter_topic(topic):
        patterns = {dead_letter_pattern(each): each for each in app.patterns(DEAD_LETTERS)}
        grant = _matching(list(patterns), topic)
        remedy = "--dead-letters GROUP"
        is_allowed = principal.may_read_dead_letters(topic)
        found.append(
            AccessCheck(f"pull dead letters {topic}", is_allowed, patterns.get(grant, ""), "" if is_allowed else remedy)
        )
    else:
        is_allowed = principal.may_pull_from(topic)
        what = f"pull from topic {topic}"
        found.append(_by_grant(what, is_allowed, app.patterns(PULL_TOPIC), topic, f"--pull-topic '{topic}'"))
    if group is not None:
        is_allowed = principal.may_pull_as(group)
        what = f"pull as group {group}"
        found.append(_by_grant(what, is_allowed, app.patterns(PULL_GROUP), group, f"--pull-group '{group}'"))
    return found


def _principal(app: ApplicationDefinition) -> Principal:
    return Principal(app, app.keys[0].key_id if app.keys else "", 0, 0)


def _key(app: ApplicationDefinition) -> list[AccessCheck]:
    keys = ", ".join(key.key_id for key in app.keys)
    return [AccessCheck("authenticate with a key", bool(keys), keys)]


def _by_grant(what: str, is_allowed: bool, patterns: Sequence[str], name: str, remedy: str) -> AccessCheck:
    return AccessCheck(what, is_allowed, _matching(patterns, name) if is_allowed else "", "" if is_allowed else remedy)


def _matching(patterns: Sequence[str], name: str) -> str:
    """The pattern that allows a name: the name itself before prefixes, and the longest of those."""
    fitting = [each for each in patterns if each == name or (each.endswith("*") and name.startswith(each[:-1]))]
    return max(fitting, key=lambda each: (each == name, len(each)), default="")
