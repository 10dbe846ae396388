"""The connection to the console's database: SQLite by default, PostgreSQL by URL."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from console.errors import DatabaseUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"
HEAD, BASE = "head", "base"
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

    def migrate(self, revision: str = HEAD) -> None:
        """Bring the schema to a revision, up or down; of several processes one does it. Raises DatabaseUnavailable."""
        settings, known = _settings(), revisions()
        if revision not in (HEAD, BASE, *known):
            raise DatabaseUnavailable(f"schema {revision}: unknown: use head, base or one of {', '.join(known)}")
        with self.write() as connection:
            if self.kind == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_ID})"))
            settings.attributes["connection"] = connection
            now = MigrationContext.configure(connection).get_current_revision()
            if now is not None and now not in known:
                raise DatabaseUnavailable(
                    f"database {self.shown}: its schema {now} is of a newer version of Penstock: start that one, or "
                    "bring it down with its --schema"
                )
            wanted = {HEAD: len(known) - 1, BASE: -1}.get(revision, known.index(revision) if revision in known else 0)
            is_down = now is not None and wanted < known.index(now)
            (command.downgrade if is_down else command.upgrade)(settings, revision)

    def copy_to(self, path: Path) -> None:
        """Write a whole copy of an SQLite database, also while consoles use it. Raises DatabaseUnavailable."""
        self._only_sqlite("--backup", "pg_dump")
        part = path.with_name(path.name + ".part")
        try:
            os.close(os.open(part, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600))
            with closing(sqlite3.connect(part)) as target, self.read() as connection:
                connection.connection.driver_connection.backup(target)  # type: ignore[union-attr]
            with open(part, "rb") as written:
                os.fsync(written.fileno())
            part.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise DatabaseUnavailable(f"backup {path}: {error}") from error

    def replace_by(self, path: Path) -> None:
        """Take the content of a copy in place of the present one, whole or not at all. Raises DatabaseUnavailable."""
        self._only_sqlite("--restore", "pg_restore")
        target = make_url(str(self._engine.url)).database or ""
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
                if fault := _backup_fault(source):
                    raise DatabaseUnavailable(f"restore {path}: {fault}; nothing was changed")
                with closing(sqlite3.connect(target)) as present:
                    source.backup(present)
        except sqlite3.Error as error:
            raise DatabaseUnavailable(f"restore {path}: {error}") from error

    def _only_sqlite(self, option: str, program: str) -> None:
        if self.kind != "sqlite":
            raise DatabaseUnavailable(f"{option}: the database is PostgreSQL: use {program}")

    def check(self) -> None:
        """Raises DatabaseUnavailable."""
        with self.read() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self._engine.dispose()


def _backup_fault(source: sqlite3.Connection) -> str:
    """Why a file cannot be taken as a backup of a console; empty: it can. Raises sqlite3.Error."""
    if source.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        return "it is damaged"
    if not source.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return "it is no backup of a console"
    row = source.execute("SELECT version_num FROM alembic_version").fetchone()
    return "" if row and row[0] in revisions() else "it is of a newer version of Penstock"


def revisions() -> list[str]:
    """All revisions of the schema, the first one first."""
    return [each.revision for each in ScriptDirectory.from_config(_settings()).walk_revisions()][::-1]


def _settings() -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    return settings


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
