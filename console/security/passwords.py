"""Passwords: argon2id, a bounded number at a time."""

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from console.errors import InvalidForm

CHARS_MIN, CHARS_MAX = 10, 256
MEMORY_KIB, ROUNDS, LANES = 19 * 1024, 2, 1
AT_ONCE = 2  # 19 MiB each


class Passwords:
    """Encodes and verifies passwords. A call takes some 30 ms of a processor and waits while AT_ONCE others run."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=LANES)
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._of_nobody = self._hasher.hash("of nobody")

    def encode(self, password: str) -> str:
        """The encoded form, with its own salt and parameters. Raises InvalidForm for one that is too short or long."""
        if not CHARS_MIN <= len(password) <= CHARS_MAX:
            raise InvalidForm({"password": f"Use {CHARS_MIN} to {CHARS_MAX} characters."})
        with self._slots:
            return self._hasher.hash(password.encode(errors="surrogatepass"))

    def is_right(self, encoded: str | None, password: str) -> bool:
        """Whether the password is that of the encoded form. None takes as long, and is never right."""
        with self._slots:
            try:
                self._hasher.verify(
                    encoded or self._of_nobody, password[: CHARS_MAX + 1].encode(errors="surrogatepass")
                )
            except (VerificationError, InvalidHashError):
                return False
        return encoded is not None

    def is_outdated(self, encoded: str) -> bool:
        """Whether it was encoded with other parameters than today's."""
        return self._hasher.check_needs_rehash(encoded)
