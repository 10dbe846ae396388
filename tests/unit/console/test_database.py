"""The database on SQLite and PostgreSQL: schema, migrations, compare-and-set, outages."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, inspect, select, text

from common.clock import FakeClock
from console.asking.team_quota import TeamQuota
from console.asking.topic_wish import parse_wish
from console.database.action_log import ActionLog
from console.database.console_database import ConsoleDatabase, revisions
from console.database.schema import metadata, teams
from console.database.user_requests import APPLIED, APPROVED, CONSUMPTION, REJECTED, REQUESTED, WITHDRAWN, UserRequests
from console.errors import DatabaseUnavailable, InvalidForm, RequestConflict
from tests.services.postgresql import FOLDERS, PostgreSQL
from tests.unit.console.consoles import SETUP, WISH, make_console, text_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def postgresql():
    # Not below pytest's directory: user postgres cannot enter it.
    directory = Path(tempfile.mkdtemp(prefix="penstock-"))
    directory.chmod(0o755)
    try:
        with PostgreSQL(directory / "server") as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'console.db'}"
    server = request.getfixturevalue("postgresql")
    database = ConsoleDatabase(server.url)
    with database.write() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    database.close()
    return server.url


def test_migrations_make_the_schema_that_the_code_declares_and_go_back(url):
    database = ConsoleDatabase(url)
    database.migrate()
    database.migrate()
    with database.read() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
        # A unique constraint's name is the database's own.
        assert [each for each in found if "constraint" not in each[0]] == []
    database.migrate("base")
    with database.read() as connection:
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
    database.close()


def test_requests_of_an_earlier_version_keep_what_they_have_and_those_for_consumption_go_with_a_way_back(url):
    database = ConsoleDatabase(url)
    database.migrate("0003")
    with database.write() as connection:
        connection.execute(text("INSERT INTO teams (id, name) VALUES (1, 'shop')"))
        row = "(100, 'orders', 1, 'olga', '{}', '{}', 'applied', 3, 7, 41, 0, 0)"
        columns = "id, topic, team_id, asker, asked, settings, state, version, topic_version, kind_version, created_ms, changed_ms"
        connection.execute(text(f"INSERT INTO requests ({columns}) VALUES {row}"))
    database.migrate()
    requests = UserRequests(database, ActionLog(database, FakeClock()), FakeClock())
    found = requests.get(100)
    assert (found.kind, found.name, found.written_version, found.kind_versions) == ("topic", "orders", 7, {"topic": 41})
    other = requests.add(SETUP, 1, {"name": "orders", "description": "x"}, {}, REQUESTED, CONSUMPTION)
    database.migrate("0003")
    with database.read() as connection:
        rows = connection.execute(text("SELECT id, topic, topic_version, kind_version FROM requests")).all()
        events = connection.execute(
            text(f"SELECT count(*) FROM request_events WHERE request_id = {other}")
        ).scalar_one()
    assert [tuple(each) for each in rows] == [(100, "orders", 7, 41)] and events == 0
    database.close()


def test_each_revision_goes_up_and_down_with_the_rows_of_the_first_ones(url):
    database, known = ConsoleDatabase(url), revisions()
    for revision in known:
        database.migrate(revision)
        if revision == known[0]:
            with database.write() as connection:
                connection.execute(insert(teams).values(name="kept"))
    for revision in [*known[-2::-1], *known[1:], "head"]:
        database.migrate(revision)
        with database.read() as connection:
            assert MigrationContext.configure(connection).get_current_revision() == (
                known[-1] if revision == "head" else revision
            )
            assert list(connection.execute(select(teams.c.name)).scalars()) == ["kept"]
    with database.read() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
        assert [each for each in found if "constraint" not in each[0]] == []
    with pytest.raises(DatabaseUnavailable, match=f"schema 17: unknown: use head, base or one of {known[0]}"):
        database.migrate("17")
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseUnavailable, match="its schema 9999 is of a newer version of Penstock"):
        database.migrate()
    database.close()


def documented(kind: str) -> list[str]:
    """The commands of the section on backups, of one kind of database: backup and restore."""
    section = (ROOT / "docs" / "console.md").read_text().partition("## Back up and restore")[2]
    blocks = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.S)
    return blocks[["sqlite", "postgresql"].index(kind)].strip().splitlines()


def test_a_backup_brings_back_what_was_there_by_the_documented_commands(url, tmp_path, request):
    kind = url.partition(":")[0]
    data = tmp_path / "data"
    data.mkdir()
    places = {"PENSTOCK_CONFIG": (tmp_path / "config").as_uri(), "LC_ALL": "C"}
    if kind == "postgresql":
        places |= {"PENSTOCK_CONSOLE_DATABASE": url}
        path = f"{FOLDERS[-1]}:{os.environ['PATH']}"
    else:
        url, path = f"sqlite:///{data / 'console.db'}", os.environ["PATH"]
    database = ConsoleDatabase(url)
    database.migrate()
    with database.write() as connection:
        connection.execute(insert(teams).values(name="before"))
    backup, *restore = documented(kind)
    penstock = f"{shlex.quote(sys.executable)} -P -m penstock"

    def run(*lines: str) -> None:
        for line in lines:
            command = line.replace("/srv/console", str(data)).replace("penstock console", f"{penstock} console")
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env={**os.environ, **places, "PATH": path, "PYTHONPATH": str(ROOT)},
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}: {done.stderr}"

    run(backup)
    with database.write() as connection:
        connection.execute(insert(teams).values(name="after"))
    database.close()
    run(*restore)
    database = ConsoleDatabase(url)
    with database.read() as connection:
        assert list(connection.execute(select(teams.c.name)).scalars()) == ["before"]
    database.close()


def test_what_is_no_backup_is_refused_and_changes_nothing(tmp_path):
    database = ConsoleDatabase(f"sqlite:///{tmp_path / 'console.db'}")
    database.migrate()
    with database.write() as connection:
        connection.execute(insert(teams).values(name="kept"))
    (tmp_path / "text").write_text("hello" * 1_000)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)").connection.close()
    (tmp_path / "empty").touch()
    database.copy_to(tmp_path / "newer.db")
    with closing(sqlite3.connect(tmp_path / "newer.db", isolation_level=None)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    for name in ("text", "other.db", "empty", "missing", "newer.db"):
        with pytest.raises(DatabaseUnavailable, match=f"restore {tmp_path / name}"):
            database.replace_by(tmp_path / name)
    with pytest.raises(DatabaseUnavailable, match="backup"):
        database.copy_to(tmp_path / "no" / "folder")
    with database.read() as connection:
        assert list(connection.execute(select(teams.c.name)).scalars()) == ["kept"]
    database.close()
    postgresql = ConsoleDatabase("postgresql://penstock@127.0.0.1:1/console")
    with pytest.raises(DatabaseUnavailable, match="use pg_dump"):
        postgresql.copy_to(tmp_path / "x")


def test_several_processes_that_start_at_once_migrate_once(url):
    failed = []

    def start() -> None:
        database = ConsoleDatabase(url)
        try:
            database.migrate()
        except Exception as error:
            failed.append(error)
        database.close()

    threads = [threading.Thread(target=start) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


def test_of_many_decisions_at_once_one_counts(url):
    database = ConsoleDatabase(url)
    database.migrate()
    database.close()
    console = make_console(url)
    number = console.parts.requests.add(SETUP, console.team_id, WISH, {}, REQUESTED)
    outcomes = []

    def decide(state: str) -> None:
        try:
            console.parts.requests.move(SETUP, number, (REQUESTED, 1), state, "because")
            outcomes.append(state)
        except RequestConflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=decide, args=(state,)) for state in (REJECTED, WITHDRAWN) * 3]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes)[:5] == ["conflict"] * 5 and outcomes.count("conflict") == 5
    assert [each.kind for each in console.parts.requests.events(number)][1:] == [max(outcomes)]
    with pytest.raises(InvalidForm, match="exists already"):
        console.parts.accounts.add_team(SETUP, "shop")
    assert approved_at_once(console, 4, topics_max=1) == 1
    console.parts.configuration.view.close()
    console.parts.database.close()


def test_a_topic_that_is_applied_while_the_quota_is_compared_counts(url):
    database = ConsoleDatabase(url)
    database.migrate()
    database.close()
    console = make_console(url)
    parts = console.parts
    wish = parse_wish({**WISH, "name": "topic-1"})
    number = parts.requests.add(SETUP, console.team_id, wish.to_value(), wish.settings(), REQUESTED)
    parts.requests.move(SETUP, number, (REQUESTED, 1), APPROVED, "")
    with parts.database.read() as connection:

        class AppliedAfterTheFirstRead:
            def execute(self, statement):
                rows = connection.execute(statement).all()
                parts.approval.apply(SETUP, number)
                return rows

        found = parts.quotas.holdings(console.team_id, AppliedAfterTheFirstRead())
    assert parts.requests.get(number).state == APPLIED
    assert [each.name for each in found] == [parts.requests.get(number).name]
    parts.configuration.view.close()
    parts.database.close()


def approved_at_once(console, count: int, **bounds: int) -> int:
    """How many of so many requests of a team are approved at once, each for a topic, under a quota."""
    parts = console.parts
    parts.quotas.replace(SETUP, console.team_id, TeamQuota(**bounds).to_value(), 0)
    wishes = [parse_wish({**WISH, "name": f"topic-{number}"}) for number in range(count)]
    asked = [parts.requests.add(SETUP, console.team_id, each.to_value(), each.settings(), REQUESTED) for each in wishes]

    def approve(number: int) -> None:
        found = parts.requests.get(number)
        with suppress(RequestConflict):
            parts.approval.approve(SETUP, number, 1, "", parts.quota_check.at_approval(found, accepted=False))

    threads = [threading.Thread(target=approve, args=(number,)) for number in asked]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(parts.requests.get(number).state == APPLIED for number in asked)


def test_a_database_that_is_locked_or_gone_is_a_page_and_not_ready(console, tmp_path):
    browser = console.as_role("operator")
    console.parts.database.close()
    (tmp_path / "console.db").write_bytes(b"not a database" * 100)
    for path in ("/topics", "/", "/audit"):
        answer = browser.get(path)
        assert answer.status_code == 503 and "database does not answer" in text_of(answer), path
        assert "Traceback" not in answer.get_data(as_text=True) and str(tmp_path) not in answer.get_data(as_text=True)
    assert browser.get("/readyz").status_code == 503 and browser.get("/healthz").status_code == 200


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "sqlite:///no/such/folder/x.db", ""])
def test_a_database_url_that_cannot_be_used_is_one_sentence(url):
    with pytest.raises(DatabaseUnavailable) as caught:
        ConsoleDatabase(url).check()
    assert "\n" not in str(caught.value)


def test_a_password_in_the_url_is_not_shown():
    database = ConsoleDatabase("postgresql://penstock:hunter2@127.0.0.1:1/console")
    assert "hunter2" not in database.shown
    with pytest.raises(DatabaseUnavailable) as caught:
        database.check()
    assert "hunter2" not in str(caught.value)
