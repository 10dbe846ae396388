"""The map of the installation: processes with the configuration that they have applied, broker groups with their brokers."""

from typing import Any

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from common.config.definitions import CLUSTERS_MAX
from common.config.errors import ConfigError
from console.installation.processes import ProcessState, process_states
from console.installation.replica_groups import ReplicaState
from console.pages.charts import installation_charts, lately_refused
from console.parts import parts

blueprint = Blueprint("map", __name__)


@blueprint.get("/map")
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
    return render_template("map.html", **shown, **_brokers(), charts=installation_charts(), refused=lately_refused())


@blueprint.get("/map/live")
def live() -> ResponseReturnValue:
    """The part with brokers and replicas, which the page asks for again and again."""
    return render_template("map_live.html", **_brokers())


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
