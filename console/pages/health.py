"""/healthz and /readyz, for the supervisor and for probes."""

from flask import jsonify
from flask.typing import ResponseReturnValue

from console.errors import DatabaseUnavailable
from console.parts import parts
from console.roles import Role
from console.routes import resource


@resource("/healthz", role=Role.NOBODY, is_for_probes=True)
def alive() -> ResponseReturnValue:
    """The process answers."""
    return jsonify(alive=True)


@resource("/readyz", role=Role.NOBODY, is_for_probes=True)
def ready() -> ResponseReturnValue:
    """Status 200 when the database works. A store that is away is a note: pages show the last state."""
    notes = {"configuration": away} if (away := parts().configuration.away()) else {}
    try:
        parts().database.check()
    except DatabaseUnavailable:
        return jsonify(ready=False, reasons={"database": "the console's database cannot be used"}, notes=notes), 503
    return jsonify(ready=True, notes=notes)
