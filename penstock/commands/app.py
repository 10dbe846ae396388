"""`penstock app`: applications, their keys, grants and settings."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from common.admin import applications
from common.admin.applications import ApplicationSettings, Grants, NewKey
from common.config.definitions import DEAD_LETTERS, PULL_GROUP, PULL_TOPIC, SEND, ApplicationDefinition, DerivedKey
from common.config.setting import table_of
from common.quoting import listed
from common.utc import utc
from penstock.commands.app_check import check
from penstock.commands.key_ages import last_used
from penstock.terminal import completing
from penstock.terminal.confirming import confirm, yes_option
from penstock.terminal.exits import CommandError, CommandGroup
from penstock.terminal.instance import Instance, administration, instance_options, warn_unreadable
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows
from penstock.terminal.paging import page_options
from penstock.terminal.setting_options import settings_options

GRANT_COLUMNS = {"send": SEND, "pull_topics": PULL_TOPIC, "pull_groups": PULL_GROUP, "dead_letters": DEAD_LETTERS}
GRANT_OPTIONS = {
    "--send": "Let it send to these topics",
    "--pull": "Let it pull from these topics and as these groups, but not their dead letters",
    "--pull-topic": "Let it pull from these topics",
    "--pull-group": "Let it pull as these groups",
    "--dead-letters": "Let it pull the dead letters of these groups",
}
STILL_ACCEPTED = ": they may still accept the key; stop them, or start them with --config-age-max-s"


def row(app: ApplicationDefinition) -> dict[str, Any]:
    return {
        "name": app.name,
        "keys": [key.key_id for key in app.keys],
        **{column: list(app.patterns(action)) for column, action in GRANT_COLUMNS.items()},
        **{name: value for name, value in app.to_value().items() if name in table_of(ApplicationDefinition)},
    }


def grant_options(command: Callable) -> Callable:
    """Adds the options of grants, which the command takes as `grants`."""

    @wraps(command)
    def with_grants(*arguments: Any, **named: Any) -> Any:
        grants = Grants(**{each.name: named.pop(each.name) for each in fields(Grants)})
        return command(*arguments, grants=grants, **named)

    for each, (option, text) in reversed(list(zip(fields(Grants), GRANT_OPTIONS.items(), strict=True))):
        add = click.option(option, each.name, multiple=True, metavar="PATTERN", help=f"{text}; repeatable.")
        with_grants = add(with_grants)
    return with_grants


def show_secret(key: NewKey, output: str) -> None:
    show_one({"app": key.app, "key_id": key.key_id, "secret": key.secret}, output)
    if not is_for_scripts(output):
        click.echo("The secret is not shown again: keep it in a file that only the application can read.", err=True)


@click.group(cls=CommandGroup)
def app() -> None:
    """Manage applications: their keys, and which topics and groups they may use.

    A PATTERN is a name, or a prefix followed by *.

    \b
    penstock app create shop -o json
    penstock app grant shop --send 'orders*' --pull-topic 'orders*' --pull-group readers --dead-letters readers
    penstock app rotate shop; …change the clients over…; penstock app revoke shop k-0123456789
    """


@app.command()
@click.argument("name")
@grant_options
@output_option
@instance_options(keys=("secrets_key",))
def create(instance: Instance, name: str, grants: Grants, output: str) -> None:
    """Create application NAME and print its first key. It may do nothing without a grant."""
    with administration(instance, changes=True) as admin:
        key = applications.create(admin, name, grants)
    show_secret(key, output)


@app.command()
@click.argument("name", shell_complete=completing.applications)
@output_option
@instance_options(keys=("secrets_key",))
def rotate(instance: Instance, name: str, output: str) -> None:
    """Add a second key and print it. The first key stays valid until it is revoked."""
    with administration(instance, changes=True) as admin:
        key = applications.rotate(admin, name)
    show_secret(key, output)


@app.command()
@click.argument("name", shell_complete=completing.applications)
@click.argument("key_id")
@output_option
@instance_options()
def revoke(instance: Instance, name: str, key_id: str, output: str) -> None:
    """Reject a key from now on. A warning names the processes that may still accept it."""
    with administration(instance, changes=True, risk=STILL_ACCEPTED) as admin:
        changed = applications.revoke(admin, name, key_id)
    if not changed.keys:
        click.echo(
            f"warning: application {name} has no key left and cannot authenticate: use `penstock app rotate {name}`",
            err=True,
        )
    show_one(row(changed), output)


@app.command()
@click.argument("name", shell_complete=completing.applications)
@grant_options
@output_option
@instance_options()
def grant(instance: Instance, name: str, grants: Grants, output: str) -> None:
    """Add grants. A pull needs a grant for its group and one for each of its topics.

    A topic of dead letters needs a grant for the dead letters of its group.
    """
    _need_patterns(grants)
    with administration(instance, changes=True) as admin:
        changed = applications.grant(admin, name, grants)
    show_one(row(changed), output)


@app.command()
@click.argument("name", shell_complete=completing.applications)
@grant_options
@output_option
@instance_options()
def ungrant(instance: Instance, name: str, grants: Grants, output: str) -> None:
    """Remove grants, by the patterns that they were given with."""
    _need_patterns(grants)
    with administration(instance, changes=True) as admin:
        changed = applications.ungrant(admin, name, grants)
    show_one(row(changed), output)


@app.command("set")
@click.argument("name", shell_complete=completing.applications)
@settings_options(ApplicationSettings)
@output_option
@instance_options()
def set_command(instance: Instance, name: str, output: str, settings: ApplicationSettings) -> None:
    """Change the given limits and allowed origins of an application."""
    if not settings:
        raise click.UsageError("no setting is given: use an option such as --rate-messages or --groups-max, see --help")
    with administration(instance, changes=True) as admin:
        changed = applications.set_application(admin, name, settings)
    show_one(row(changed), output)


def _need_patterns(grants: Grants) -> None:
    if not grants.all():
        raise click.UsageError(f"no grant is given: use {listed(list(GRANT_OPTIONS))} with a PATTERN")


@app.command("list")
@page_options
@output_option
@instance_options()
def list_command(instance: Instance, prefix: str, after: str, limit: int, output: str) -> None:
    """List applications, without their secrets."""
    with administration(instance) as admin:
        found = applications.list_applications(admin, prefix, after, limit, warn_unreadable)
    show_rows([row(each) for each in found], ("name", "keys", *GRANT_COLUMNS), output)


@app.command()
@click.argument("name", shell_complete=completing.applications)
@output_option
@instance_options("engine")
def show(instance: Instance, name: str, output: str) -> None:
    """Show one application with the age and last use of its keys, without their secrets, and its use of its quotas.

    The proxies of a running `up` report uses since they started, to within ten minutes.
    """
    with administration(instance) as admin:
        found, version = applications.show(admin, name)
    uses = last_used(instance, name)
    keys: list[dict[str, str | None]] = [
        {
            "key_id": key.key_id, "created": utc(key.created_at_ms), "last_used": uses.get(key.key_id),
            "root": key.root if isinstance(key, DerivedKey) else None,
        }
        for key in found.keys
    ]  # fmt: skip
    shown = keys if is_for_scripts(output) else list(map(_key_line, keys))
    show_one({**row(found), **quotas(instance, found), "keys": shown, "version": version}, output)


def _key_line(key: dict[str, str | None]) -> str:
    secret = f"derived from root key {key['root']}" if key["root"] else "stored in clear"
    return f"{key['key_id']} (created {key['created']}, last used {key['last_used'] or 'unknown'}, secret {secret})"


def quotas(instance: Instance, app: ApplicationDefinition) -> dict[str, Any]:
    """The quotas of what an application may create, and the largest number at one engine; None: no engine tells."""
    from penstock.terminal import engines  # the link and its native parts: only for the commands that need the engine

    try:
        answers = list(engines.ask_all(instance, "created", application=app.name).values())
    except CommandError:
        answers = []
    shown: dict[str, Any] = {"groups_max": app.groups_max, "family_topics_max": app.family_topics_max}
    for name in ("groups", "family_topics"):
        shown[f"{name}_created"] = max((answer[name] for answer in answers), default=None)
    return shown


@app.command()
@click.argument("name", shell_complete=completing.applications)
@yes_option
@output_option
@instance_options()
def delete(instance: Instance, name: str, yes: bool, output: str) -> None:
    """Delete an application: its keys are rejected at once. A warning names the processes that may still accept them."""
    confirm(f"Delete application {name}? All its keys are rejected at once.", yes)
    with administration(instance, changes=True, risk=STILL_ACCEPTED) as admin:
        applications.delete(admin, name)
    show_one({"deleted": name}, output)


app.add_command(check)
command = app
