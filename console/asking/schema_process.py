"""Checks a JSON schema, and a body against it: a process of its own, because a schema can be made to run for ever.

One JSON object on standard input: `schema`, a text, and `body`, a text or null. One on standard output: `schema_fault`,
a sentence or "", and `body_faults`, sentences. References to other documents are not followed.
"""

import json
import sys
from typing import Any

import jsonschema_rs

FAULTS_MAX = 10
FAULT_CHARS_MAX = 300


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump(checked(asked["schema"], asked["body"]), sys.stdout)


def checked(schema: str, body: str | None) -> dict[str, Any]:
    try:
        # Regular expressions of this kind take time in proportion to the text.
        validator = jsonschema_rs.validator_for(
            json.loads(schema), retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError) as error:
        return {"schema_fault": _sentence(str(error)), "body_faults": []}
    return {"schema_fault": "", "body_faults": [] if body is None else _body_faults(validator, body)}


def _body_faults(validator: Any, body: str) -> list[str]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ["It is no JSON text."]
    found: list[str] = []
    for error in validator.iter_errors(value):
        if len(found) == FAULTS_MAX:
            return [*found, "There are more."]
        place = "/".join(map(str, error.instance_path))
        found.append(f"{place or 'The whole'}: {_sentence(error.message)}")
    return found


def _sentence(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= FAULT_CHARS_MAX else first[: FAULT_CHARS_MAX - 1] + "…"


def _refuse(uri: str) -> Any:
    raise ValueError("references to other documents are not followed")


if __name__ == "__main__":
    main()
