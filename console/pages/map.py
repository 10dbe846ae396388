"""The map of the installation: processes with the configuration that they have applied, broker groups with their brokers."""

import time
from collections.abc import Generator
from itertools import count
from typing import Any, cast

from flask import Flask, current_app, render_template
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import TooManyRequests

from common.config.definitions import CLUSTERS_MAX
from common.config.errors import ConfigError
from console.installation.processes import ProcessState, process_states
from console.installation.replica_groups import ReplicaState
from console.pages.charts import installation_charts, lately_refused
from console.pages.event_stream import OPENED, EventStream, event
from console.parts import ConsoleParts, account, parts, signed_in
from console.roles import Role
from console.routes import page, resource

PAUSE_S, STREAM_S_MAX = 1.0, 600.0
CHECK_STEPS = 3
"""A stream looks after so many steps whether its session still lasts."""


@page("/map", role=Role.VIEWER, title="Map", menu=6, sample="/map?range=15m")
def show() -> ResponseReturnValue:
    """The map."""
    processes: list[ProcessState] = []
    fault = ""
    try:
        processes = process_states(parts().configuration.admin("console"))
    except ConfigError as error:
        fault = str(error)
    version = {kind: number for kind, number in parts().configuration.view.version.items() if number and len(kind) < 20}
    generation = version.pop("generation", 0)
    shown = {"processes": processes, "fault": fault, "version": version, "generation": generation}
    return render_template(
        "installation/map.html", **shown, **_brokers(), charts=installation_charts(), refused=lately_refused()
    )


@resource("/map/live", role=Role.VIEWER)
def live() -> ResponseReturnValue:
    """The part with brokers and replicas, which the page asks for again and again."""
    return render_template("installation/map_live.html", **_brokers())


@resource("/map/stream", role=Role.VIEWER)
def stream() -> ResponseReturnValue:
    """Tells the page when that part has changed: it asks for it then. Ends with its session, and after 10 minutes."""
    own, composed, session = account(), parts(), signed_in()
    assert session is not None
    if refusal := composed.map_places.take(own.name):
        raise TooManyRequests(refusal)
    app = cast(Any, current_app)._get_current_object()
    events = _changes(app, composed, session.token)
    return EventStream(events, lambda: composed.map_places.give_back(own.name)).answer()


def _changes(app: Flask, composed: ConsoleParts, token: str) -> Generator[str, None, None]:
    yield OPENED
    end_s, last = time.monotonic() + STREAM_S_MAX, ""
    for step in count():
        if step % CHECK_STEPS == CHECK_STEPS - 1 and composed.sessions.find(token) is None:
            yield event("end", {"text": "Your session has ended: sign in again."})
            return
        if time.monotonic() > end_s:
            return  # the browser opens it again
        with app.app_context():
            now = repr(_brokers())
        yield event("changed", {}) if now != last else ": as before\n\n"  # tells whether the browser is still there
        last = now
        time.sleep(PAUSE_S)


def _brokers() -> dict[str, Any]:
    replicas: list[ReplicaState] = []
    fault = ""
    try:
        replicas = replicas_now()
    except (ConfigError, OSError) as error:
        fault = str(error)
    configuration, pages = parts().configuration, parts().sampler.pages
    return {
        "brokers": parts().broker_states.get(), "replicas": replicas, "replica_fault": fault,
        "parts": pages.states, "has_pages": pages.is_configured, "not_read": pages.away,
        "store": place_of(configuration.url), "store_away": configuration.away(), "clusters": kafka_clusters(),
    }  # fmt: skip


def kafka_clusters() -> dict[str, str]:
    """The brokers by which each Kafka cluster is found, by the cluster's name, by the followed state."""
    names = parts().configuration.names.page("kafka", limit=CLUSTERS_MAX).names
    found = {name: parts().configuration.view.kafka_cluster(name) for name in names}
    return {name: each.bootstrap for name, each in found.items() if each is not None}


def place_of(url: str) -> str:
    """The configuration store in words, without a user's name and password."""
    kind, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{'ZooKeeper' if kind == 'zookeeper' else kind or 'in memory'} {place}".strip()


def replicas_now() -> list[ReplicaState]:
    """The broker groups with replicas; none where each group has one broker. Raises ConfigError, OSError."""
    has_replicas = any(len(addresses) > 1 for addresses in parts().brokers.places().values())
    return parts().replica_states.get() if has_replicas and parts().configuration.url else []
