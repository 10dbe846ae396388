"""The console's process: `python -m console --config URL --data DIR …`.

Threads of the system, no gevent: database drivers and argon2 block.
"""

import argparse
import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from common.clock import SystemClock
from common.config import open_store
from common.config.root_keys import root_keys_of
from common.config.store import ConfigStore
from common.config.view import ConfigView
from common.errors import PenstockError
from common.operator_proof import OperatorKeys
from common.ops.ending import end
from common.ops.log import setup_logging
from common.ops.ready import announce_ready
from console.application import FORM_BYTES_MAX, make_application
from console.database.accounts import Accounts
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase
from console.database.one_time_links import OneTimeLinks
from console.installation.broker_queries import BrokerQueries
from console.installation.configuration import Configuration
from console.installation.live_tail import TAILS_MAX
from console.installation.migration_runs import MigrationRuns
from console.installation.topics_in_kafka import TopicsInKafka
from console.options import FIRST, mail_server, openid_settings, parse
from console.parts import MAPS_MAX, ConsoleParts, make_parts
from console.security.listener import page_server
from console.security.openid_provider import OpenIdProvider
from console.security.origins import Origins
from console.watching.watch import Watch

log = logging.getLogger("penstock.console")
DATABASE_VARIABLE = "PENSTOCK_CONSOLE_DATABASE"
PAGE_THREADS = 8
THREADS = PAGE_THREADS + TAILS_MAX + MAPS_MAX  # a live tail and a live map hold a thread each
RESUME_S = 5.0
M_ARENA_MAX, ARENAS = -8, 2  # of glibc's malloc.h


def open_database(options: argparse.Namespace) -> ConsoleDatabase:
    """The database, at whatever schema. Raises DatabaseUnavailable."""
    options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    url = options.database or os.environ.get(DATABASE_VARIABLE, "")
    if not url:
        path = (options.data / "console.db").absolute()
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite would make it readable by others
        url = f"sqlite:///{path}"
    return ConsoleDatabase(url)


def compose(
    options: argparse.Namespace, database: ConsoleDatabase, store: ConfigStore, view: ConfigView
) -> ConsoleParts:
    """The parts for these options."""
    clock = SystemClock()
    files = (options.admin_key, options.controller_key or options.cluster_key, options.cluster_key)
    key, controller_key, cluster_key = (Path(file).read_bytes() if file else b"" for file in files)
    brokers = BrokerQueries(view, key, options.engine)
    configuration = Configuration(store, view, clock, options.config, partial(root_keys_of, options.secrets_key))
    origins = Origins(options.public_url, options.listen.host)
    made = make_parts(
        clock, database, configuration, brokers, origins, options.metrics,
        mail_server(options), options.notify_networks,
        operators=OperatorKeys(key, cluster_key), controller_key=controller_key,
        migrations=migration_runs(options, brokers), homes=TopicsInKafka(["--config", options.config]),
    )  # fmt: skip
    settings = openid_settings(options)
    if settings is None:
        return made
    check = importlib.import_module("console.security.openid_tokens").check_id_token
    return replace(made, openid=OpenIdProvider(settings, clock, check))


def migration_runs(options: argparse.Namespace, brokers: BrokerQueries) -> MigrationRuns:
    """The commands of plans, with what they need to find this Penstock."""
    if not options.admin_key:
        return MigrationRuns(None, ())
    found = ["--config", options.config, "--admin-key", str(Path(options.admin_key).absolute())]
    return MigrationRuns(options.data / "migrations", found, brokers.leader)


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    database = open_database(options)
    database.migrate()
    store = open_store(options.config)
    view = ConfigView(store, options.data / "console.snapshot")
    parts = compose(options, database, store, view)
    app = make_application(parts)
    server = page_server(app, options.listen.host, options.listen.port, THREADS, FORM_BYTES_MAX, options.trusted_proxy)
    port = int(server.effective_port)
    threading.Thread(target=server.run, name="pages", daemon=True).start()
    url = options.public_url.rstrip("/") or f"http://{options.listen._replace(port=port)}"
    first = f"{url}/link/{parts.links.make(None)}" if parts.accounts.count() == 0 else ""
    facts = {"host": options.listen.host, "port": port, "ops_port": port, "url": url, "sign_in_link": first}
    announce_ready(options.ready_fd, facts)
    if options.ready_fd is None:
        print(f"The console serves at {first or url}", flush=True)
    log.info("url=%s database=%s: serving", url, database.shown)
    parts.courier.url = url
    watch = Watch(parts.sampler, parts.alert_watch, parts.courier, parts.clock)
    watch.start()
    while not stop.wait(RESUME_S):
        resume(parts)
    server.close()
    watch.stop()
    view.close()
    store.close()
    database.close()
    log.info("stopped")


def resume(parts: ConsoleParts) -> None:
    """Try approved requests again that are not applied yet."""
    try:
        parts.approval.resume()
    except PenstockError as error:
        log.warning("approved requests are not tried again now: %s", error)


def print_link(options: argparse.Namespace) -> None:
    """Print a one-time link: whoever may run this can read the database anyway."""
    database = open_database(options)
    database.migrate()
    url = options.public_url.rstrip("/") or f"http://{options.listen}"
    clock = SystemClock()
    journal = ActionLog(database, clock)
    accounts = Accounts(database, journal, clock)
    found = accounts.find(options.sign_in_link) if options.sign_in_link != FIRST else None
    if found is None and (options.sign_in_link != FIRST or accounts.count() > 0):
        sys.exit(f"penstock console: account {options.sign_in_link!r}: not found: name an account of the console")
    journal.note(Actor("console", "command line"), "make sign-in link", f"account {options.sign_in_link}")
    print(f"{url}/link/{OneTimeLinks(database, clock).make(found.id if found else None)}")


def keep(options: argparse.Namespace) -> None:
    """Back up, restore or migrate the database, and say so in one line."""
    database = open_database(options)
    if options.backup is not None:
        database.copy_to(options.backup)
        print(f"The database is copied to {options.backup}.")
    if options.restore is not None:
        database.replace_by(options.restore)
        database.migrate()
        print(f"The database has the content of {options.restore}.")
    if options.schema is not None:
        database.migrate(options.schema)
        print(f"The schema is at {options.schema}.")
    database.close()


def bound_arenas() -> None:
    """Let all threads share ARENAS arenas of malloc: with one for each of 20 threads, freed memory stays in all of them."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def main() -> None:
    """Parse the options and serve; print one line when serving is not possible."""
    options = parse(sys.argv[1:])
    bound_arenas()
    setup_logging("console")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        if options.sign_in_link is not None:
            print_link(options)
        elif options.backup or options.restore or options.schema:
            keep(options)
        else:
            run(options)
    except (OSError, PenstockError) as error:
        end("console", error)


if __name__ == "__main__":
    main()
