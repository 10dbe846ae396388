"""Signed texts that browsers keep for the console, such as cookies. All consoles on one database have one key."""

import hashlib
import hmac
import secrets
import threading

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from console.database.console_database import ConsoleDatabase
from console.database.schema import signing_keys

NAME = "cookies"
SIGNED_CHARS_MAX = 4_000


class Signatures:
    """The key is made at its first use. HMAC-SHA256 over purpose and text."""

    def __init__(self, database: ConsoleDatabase) -> None:
        self._database = database
        self._made: bytes | None = None
        self._making = threading.Lock()

    def sign(self, purpose: str, text: str) -> str:
        """The text with its signature. Raises DatabaseUnavailable."""
        return f"{text}.{self._mac(purpose, text)}"

    def checked(self, purpose: str, signed: str) -> str | None:
        """The text of `sign`; None: a console has not signed it for this purpose. Raises DatabaseUnavailable."""
        text, dot, mac = signed.rpartition(".")
        if not dot or len(signed) > SIGNED_CHARS_MAX:
            return None
        is_own = hmac.compare_digest(mac.encode(errors="replace"), self._mac(purpose, text).encode())
        return text if is_own else None

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._key(), f"{purpose}\n{text}".encode(errors="replace"), hashlib.sha256).hexdigest()

    def _key(self) -> bytes:
        with self._making:
            if self._made is None:
                self._made = bytes.fromhex(self._stored() or self._stored_new())
            return self._made

    def _stored(self) -> str | None:
        with self._database.read() as connection:
            wanted = select(signing_keys.c.value).where(signing_keys.c.name == NAME)
            return connection.execute(wanted).scalar_one_or_none()

    def _stored_new(self) -> str:
        try:
            with self._database.write() as connection:
                connection.execute(insert(signing_keys).values(name=NAME, value=secrets.token_hex(32)))
        except IntegrityError:
            pass  # another console was faster
        found = self._stored()
        assert found is not None
        return found
