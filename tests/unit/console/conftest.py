import shutil

import pytest

from console.database.console_database import ConsoleDatabase
from tests.unit.console.consoles import RunningConsole, make_console


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """A file with the schema, to be copied: migrating takes 0.3 s. Of the module, because its files go with it."""
    path = tmp_path_factory.mktemp("console") / "empty.db"
    database = ConsoleDatabase(f"sqlite:///{path}")
    database.migrate()
    database.close()
    return path


@pytest.fixture
def console(empty_database, tmp_path) -> RunningConsole:
    """A console with a database of its own."""
    made = make_console(f"sqlite:///{shutil.copy(empty_database, tmp_path / 'console.db')}")
    yield made
    made.parts.configuration.view.close()
    made.parts.database.close()
