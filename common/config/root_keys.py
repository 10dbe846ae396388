"""Root keys, from which secrets of applications are derived, so that the configuration does not hold the secrets.

    secret = base64url(HMAC-SHA256(root key, "penstock-secret/1\\n" + application + "\\n" + key id + "\\n" + salt))

The stored key has the salt and the id of the root key. A file has 1 to ROOT_KEYS_MAX keys of KEY_BYTES random bytes,
one after the other and nothing else. The first one makes new secrets; those of all of them are accepted.
"""

import base64
import hashlib
import hmac
import secrets
import string
from collections.abc import Sequence
from pathlib import Path

from common.config.definitions.application import DerivedKey, Key
from common.config.errors import InvalidEntry
from common.secret_file import KEY_BYTES, secret_fault

ROOT_KEYS_MAX = 16
OPTION = "--secrets-key"
ROOT_KEYS_HELP = (
    "File with the root keys from which secrets of applications are derived, followed while it changes; without it only "
    "keys whose secrets are stored in clear are accepted."
)
MAKE_ONE = "make one with: head -c 32 /dev/urandom"
_TEXT = string.printable.encode()
_NONE = DerivedKey("", "", "", 0)  # so that every key costs the same work


class RootKeys:
    """The root keys that a process has; none without a file.

    Args:
        keys: the first one makes new secrets.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {_id_of(key): key for key in keys}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all root keys, the one that makes new secrets first."""
        return tuple(self._keys)

    def new_key(self, app: str, key_id: str, now_ms: int) -> tuple[Key | DerivedKey, str]:
        """A new key of an application and its secret. Without a root key it holds its secret in clear."""
        if not self._keys:
            clear = Key(key_id, secrets.token_urlsafe(KEY_BYTES), now_ms)
            return clear, clear.secret
        root, first = next(iter(self._keys.items()))
        key = DerivedKey(key_id, secrets.token_urlsafe(16), root, now_ms)
        return key, _derived(first, app, key)

    def secret_of(self, app: str, key: Key | DerivedKey | None) -> str | None:
        """The secret of an application's key; None: there is no such key, or its root key is not here.

        Costs the same work whatever it finds.
        """
        derived_key = key if isinstance(key, DerivedKey) else _NONE
        root = self._keys.get(derived_key.root)
        derived = _derived(root or b"", app, derived_key)
        return key.secret if isinstance(key, Key) else derived if root is not None else None


def _derived(root: bytes, app: str, key: DerivedKey) -> str:
    # No field holds a newline: different fields never make the same text.
    text = f"penstock-secret/1\n{app}\n{key.key_id}\n{key.salt}".encode()
    return base64.urlsafe_b64encode(hmac.digest(root, text, hashlib.sha256)).decode().rstrip("=")


def _id_of(key: bytes) -> str:
    return "r-" + hmac.digest(key, b"penstock-root-key/1", hashlib.sha256).hex()[:10]


def load_root_keys(path: Path) -> RootKeys:
    """The root keys of a file. Raises InvalidEntry, in one sentence that begins with the option."""
    if fault := secret_fault(path, KEY_BYTES, OPTION):
        raise InvalidEntry(fault)
    try:
        with path.open("rb") as file:
            content = file.read(ROOT_KEYS_MAX * KEY_BYTES + 1)
    except OSError as error:
        raise InvalidEntry(f"{OPTION} {path}: {(error.strerror or str(error)).lower()}") from error
    if len(content) % KEY_BYTES or len(content) > ROOT_KEYS_MAX * KEY_BYTES:
        rule = f"use 1 to {ROOT_KEYS_MAX} keys of {KEY_BYTES} bytes each, and nothing else"
        raise InvalidEntry(f"{OPTION} {path}: {path.stat().st_size:,} bytes: {rule}")
    if not content.translate(None, _TEXT):
        raise InvalidEntry(f"{OPTION} {path}: text in place of random bytes: {MAKE_ONE}")
    keys = [content[at : at + KEY_BYTES] for at in range(0, len(content), KEY_BYTES)]
    found = RootKeys(keys)
    if len(found.ids) < len(keys):
        raise InvalidEntry(f"{OPTION} {path}: the same key is in it twice: keep each once")
    return found


def root_keys_of(path: str | None) -> RootKeys:
    """The root keys of a file as it is now; none without a file. Raises InvalidEntry."""
    return load_root_keys(Path(path)) if path else RootKeys()


def root_keys_faults(path: str | None) -> list[str]:
    """Why the file cannot be used; empty: it can, or there is none."""
    try:
        root_keys_of(path)
    except InvalidEntry as error:
        return [str(error)]
    return []
