"""Sessions of the console for floods: accounts in its database, as its own pages would make them."""

from contextlib import closing

from common.clock import SystemClock
from console.database.accounts import Accounts
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.sessions import Sessions, SignedIn
from tests.e2e.running import RunningPenstock


def signed_in(penstock: RunningPenstock, count: int) -> list[SignedIn]:
    """Sessions of so many administrators, each of a team of its own."""
    clock = SystemClock()
    with closing(ConsoleDatabase(f"sqlite:///{penstock.data / 'console' / 'console.db'}")) as database:
        accounts, setup = Accounts(database, ActionLog(database, clock), clock), Actor("setup", "")
        sessions, made = Sessions(database, accounts, clock), []
        for number in range(count):
            team = accounts.add_team(setup, f"team{number}")
            account = accounts.get(accounts.add(setup, f"visitor{number}", "admin", [team]))
            assert account is not None
            made.append(sessions.open(account))
    return made


def session(penstock: RunningPenstock) -> dict[str, bytes]:
    """What a port of the console adds to requests of a session."""
    (own,) = signed_in(penstock, 1)
    return {"headers": f"Cookie: penstock={own.token}".encode(), "fields": f"csrf={own.csrf}&".encode()}
