"""The credential of a job: its file holds the application's name, key id and secret, and is read where calls are made.

Only the file's path is in options, plans and task descriptions.
"""

import json
import time
from pathlib import Path
from typing import Any

from common.contract import Credential
from common.minting import mint
from common.secret_file import secret_fault
from pipeline.errors import PipelineError

REUSE_S = 60.0
"""How long one minted credential is used. Proxies accept it for 300 s and cache its verification by its bytes."""
FIELDS = ("app", "key_id", "secret")


def credential_fault(path: str) -> str:
    """Why the file cannot be used, in one sentence; empty: it can."""
    if fault := secret_fault(Path(path), 1, "credential"):
        return fault
    try:
        found = json.loads(Path(path).read_text())
    except ValueError:
        return f"credential {path}: not JSON: use the output of `penstock app create -o json`"
    missing = [name for name in FIELDS if not (isinstance(found, dict) and isinstance(found.get(name), str))]
    return (
        f"credential {path}: without {', '.join(missing)}: use the output of `penstock app create -o json`"
        if missing
        else ""
    )


class JobIdentity:
    """Mints credentials from a file. Make one per task: it is not sent to workers."""

    def __init__(self, path: str) -> None:
        if fault := credential_fault(path):
            raise PipelineError(fault)
        self._path, self._key = path, _key_of(path)
        self._minted: Any = None
        self._minted_s = 0.0

    def renew(self) -> bool:
        """Read the file again, after its key was refused; whether it has another one now."""
        found = self._key if credential_fault(self._path) else _key_of(self._path)
        if found == self._key:
            return False
        self._key, self._minted = found, None
        return True

    def credential(self) -> Any:
        now_s = time.time()
        if self._minted is None or not 0 <= now_s - self._minted_s < REUSE_S:
            self._minted_s = now_s
            self._minted = Credential(*mint(*self._key, int(now_s * 1000)))
        return self._minted


def _key_of(path: str) -> tuple[str, str, str]:
    found = json.loads(Path(path).read_text())
    return found["app"], found["key_id"], found["secret"]
