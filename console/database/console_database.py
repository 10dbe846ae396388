"""The connection to the console's database: SQLite by default, PostgreSQL by URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from console.errors import DatabaseUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_MS = 5_000
WRITES = {"penstock_writes": True}
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
LOCK_ID = 7_237_019  # of PostgreSQL's advisory lock around migrations


class ConsoleDatabase:
    """Transactions on the database. One object serves all threads.

    Args:
        url: `sqlite:///PATH` or `postgresql://…`.
    Raises:
        DatabaseUnavailable: the URL is invalid, or its driver is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
            self.kind = parsed.get_backend_name()
            if self.kind not in DRIVERS:
                raise DatabaseUnavailable(
                    f"--database {self.kind}: not supported: use sqlite:///PATH or postgresql://…"
                )
            options: dict[str, Any] = {} if self.kind == "sqlite" else {"pool_pre_ping": True}
            self._engine = create_engine(parsed.set(drivername=DRIVERS[self.kind]), **options)
        except (ArgumentError, ImportError) as error:
            raise DatabaseUnavailable(f"--database: {' '.join(str(error).split())}") from error
        self.shown = parsed.render_as_string(hide_password=True)
        if self.kind == "sqlite":
            event.listen(self._engine, "connect", _prepare)
            event.listen(self._engine, "begin", _begin)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that changes nothing. Raises DatabaseUnavailable."""
        with self._transaction({}) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, durable when the block ends; an error undoes it. Raises DatabaseUnavailable."""
        with self._transaction(WRITES) as connection:
            yield connection

    @contextmanager
    def _transaction(self, options: dict[str, Any]) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(**options)
                with connection.begin():
                    yield connection
        except DBAPIError as error:
            if isinstance(error, SQLAlchemyError) and error.orig is not None and _is_a_conflict(error):
                raise
            raise DatabaseUnavailable(f"database {self.shown}: {' '.join(str(error.orig).split())}") from error

    def migrate(self, revision: str = "head", is_back: bool = False) -> None:
        """Bring the schema to a revision; of several processes one does it. Raises DatabaseUnavailable.

        Args:
            is_back: the revision is earlier than the present one; `base` always is.
        """
        settings = Config()
        settings.set_main_option("script_location", str(MIGRATIONS))
        with self.write() as connection:
            if self.kind == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_ID})"))
            settings.attributes["connection"] = connection
            (command.downgrade if is_back or revision == "base" else command.upgrade)(settings, revision)

    def check(self) -> None:
        """Raises DatabaseUnavailable."""
        with self.read() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self._engine.dispose()


def _is_a_conflict(error: DBAPIError) -> bool:
    """Whether a constraint was violated, which is for the caller."""
    return type(error).__name__ == "IntegrityError"


def _prepare(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself: `_begin` does
    cursor = connection.cursor()
    # FULL: a decision that was shown must survive a power cut.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """A write takes its lock at once: a read that turns into a write could find the database changed, and fail."""
    writes = connection.get_execution_options().get("penstock_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
