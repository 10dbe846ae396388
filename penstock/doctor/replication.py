"""The broker groups with replicas of a running `up`, and the sessions of their coordination."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from common.address import engine_address
from common.cluster.coordination import Coordination
from common.cluster.opening import open_coordination
from common.config.errors import ConfigError
from engine.client.dial import greet
from engine.link.errors import LinkError
from penstock.doctor.finding import DoctorFinding

WHOLE = "SYNC_REPLICATION"
GREET_S = 1.0


def groups(states: Mapping[str, Mapping[str, Any]]) -> Iterator[DoctorFinding]:
    """One finding per group, and one per broker with damage.

    Args:
        states: by group, as `penstock.commands.replicas.states` returns them.
    """
    for name, state in states.items():
        yield _group(name, state)
        for row in state.get("brokers", ()):
            if row["damaged"]:
                words = (
                    f"broker {row['broker']}: {row['damaged']} segments have damage that no other broker has repaired"
                )
                yield DoctorFinding(
                    "damaged log", "note", words, "start a broker that has the bytes: its log names them"
                )


def sessions(url: str) -> Iterator[DoctorFinding]:
    """One finding about the coordination at that URL, and one about keys of brokers; none when there is no URL."""
    if not url:
        return
    try:
        coordination = open_coordination(url)
        try:
            coordination.groups()
            fault = coordination.session_fault
            open_to_proxies = _by_cluster_key(coordination)
        finally:
            coordination.close()
    except ConfigError as error:
        yield DoctorFinding("coordination", "missing", str(error), "no master is replaced until it answers")
        return
    advice = "a machine that dies is replaced later than docs/replicas.md says" if fault else ""
    yield DoctorFinding("coordination", "note" if fault else "ok", fault or "answers", advice)
    if open_to_proxies:
        words = f"every proxy could copy the log of, or change masters of: {', '.join(open_to_proxies)}"
        yield DoctorFinding(
            "keys of brokers", "note", words, "give engines --replica-key and --controller-key: docs/replicas.md"
        )


def _by_cluster_key(coordination: Coordination) -> list[str]:
    """The brokers that take the cluster key for replicas or controllers, too. One that does not answer is left out."""
    found = []
    for group in coordination.groups():
        for name, each in sorted(coordination.brokers(group).items()):
            with suppress(OSError, LinkError):
                if greet(engine_address(each.address), role="doctor", timeout_s=GREET_S).by_cluster_key:
                    found.append(f"{group}/{name}")
    return found


def _group(name: str, state: Mapping[str, Any]) -> DoctorFinding:
    subject, show = f"replicas of {name}", f"`penstock broker show {name}` says why"
    if "error" in state:
        return DoctorFinding(subject, "missing", str(state["error"]), "no master is replaced until it answers")
    rows = state["brokers"]
    master = next((row for row in rows if row["role"] == "master"), None)
    if master is None or master["answer"] != "yes":
        return DoctorFinding(subject, "missing", "no master serves", show)
    away = [row["broker"] for row in rows if row["role"] == "away"]
    words = f"{state['state']}, epoch {state['epoch']}" + (f"; away: {', '.join(away)}" if away else "")
    if state["state"] != WHOLE:
        return DoctorFinding(subject, "note", f"{words}: no slave is in sync", show)
    return DoctorFinding(subject, "note" if away else "ok", words, "start the broker that is away" if away else "")
