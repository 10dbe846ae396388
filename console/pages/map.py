"""The map of the installation: processes with the configuration that they have applied, broker groups with their brokers."""

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from common.config.errors import ConfigError
from console.installation.processes import ProcessState, process_states
from console.installation.replica_groups import ReplicaState, replica_states
from console.pages.charts import installation_charts
from console.parts import parts

blueprint = Blueprint("map", __name__)


@blueprint.get("/map")
def show() -> ResponseReturnValue:
    """The map."""
    processes: list[ProcessState] = []
    fault, url = "", parts().configuration.url
    try:
        processes = process_states(parts().configuration.admin("console"))
    except ConfigError as error:
        fault = str(error)
    replicas: list[ReplicaState] = []
    try:
        if url and any(len(addresses) > 1 for addresses in parts().brokers.places().values()):
            replicas = replica_states(url)
    except (ConfigError, OSError) as error:
        fault = fault or str(error)
    version = {kind: number for kind, number in parts().configuration.view.version.items() if number and len(kind) < 20}
    generation = version.pop("generation", 0)
    shown = {"processes": processes, "fault": fault, "version": version, "generation": generation, "replicas": replicas}
    return render_template("map.html", **shown, brokers=parts().brokers.states(), charts=installation_charts())
