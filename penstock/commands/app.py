"""`penstock app`: applications, their keys, grants and settings."""

from datetime import UTC, datetime
from typing import Any

import click

from common.admin import applications
from common.admin.applications import ApplicationSettings, Grants, NewKey
from common.config.definitions import ApplicationDefinition
from common.config.setting import table_of
from penstock.commands.exits import CommandGroup
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.key_ages import last_used
from penstock.commands.output import output_option, show_one, show_rows
from penstock.commands.paging import page_options
from penstock.commands.setting_options import settings_options


def row(app: ApplicationDefinition) -> dict[str, Any]:
    return {
        "name": app.name,
        "keys": [key.key_id for key in app.keys],
        "send": [grant.pattern for grant in app.grants if grant.action == "send"],
        "pull": [grant.pattern for grant in app.grants if grant.action == "pull"],
        **{name: value for name, value in app.to_value().items() if name in table_of(ApplicationDefinition)},
    }


def grant_options(command: Any) -> Any:
    for option in (
        click.option(
            "--pull", multiple=True, metavar="PATTERN", help="Let it pull these topics and groups; repeatable."
        ),
        click.option("--send", multiple=True, metavar="PATTERN", help="Let it send to these topics; repeatable."),
    ):
        command = option(command)
    return command


def show_secret(key: NewKey, output: str) -> None:
    show_one({"app": key.app, "key_id": key.key_id, "secret": key.secret}, output)
    if output == "table":
        click.echo("The secret is not shown again: keep it in a file that only the application can read.", err=True)


@click.group(cls=CommandGroup)
def app() -> None:
    """Manage applications: which topics they may send to and pull from. A PATTERN is a name, or a prefix followed by *.

    \b
    penstock app create shop -o json
    penstock app grant shop --send 'orders*' --pull 'orders*' --pull shop-readers
    penstock app rotate shop; …change the clients over…; penstock app revoke shop k-0123456789
    """


@app.command()
@click.argument("name")
@grant_options
@output_option
@instance_options()
def create(instance: Instance, name: str, send: tuple[str, ...], pull: tuple[str, ...], output: str) -> None:
    """Create application NAME and print its first key. It may do nothing without a grant."""
    with administration(instance, changes=True) as admin:
        key = applications.create(admin, name, Grants(send, pull))
    show_secret(key, output)


@app.command()
@click.argument("name")
@output_option
@instance_options()
def rotate(instance: Instance, name: str, output: str) -> None:
    """Add a second key and print it. The first key stays valid until it is revoked."""
    with administration(instance, changes=True) as admin:
        key = applications.rotate(admin, name)
    show_secret(key, output)


@app.command()
@click.argument("name")
@click.argument("key_id")
@output_option
@instance_options()
def revoke(instance: Instance, name: str, key_id: str, output: str) -> None:
    """Reject a key from now on."""
    with administration(instance, changes=True) as admin:
        changed = applications.revoke(admin, name, key_id)
    show_one(row(changed), output)


@app.command()
@click.argument("name")
@grant_options
@output_option
@instance_options()
def grant(instance: Instance, name: str, send: tuple[str, ...], pull: tuple[str, ...], output: str) -> None:
    """Add grants. A pull needs a grant for its group and for each of its topics."""
    _need_patterns(send, pull)
    with administration(instance, changes=True) as admin:
        changed = applications.grant(admin, name, Grants(send, pull))
    show_one(row(changed), output)


@app.command()
@click.argument("name")
@grant_options
@output_option
@instance_options()
def ungrant(instance: Instance, name: str, send: tuple[str, ...], pull: tuple[str, ...], output: str) -> None:
    """Remove grants, by the patterns that they were given with."""
    _need_patterns(send, pull)
    with administration(instance, changes=True) as admin:
        changed = applications.ungrant(admin, name, Grants(send, pull))
    show_one(row(changed), output)


@app.command("set")
@click.argument("name")
@settings_options(ApplicationSettings)
@output_option
@instance_options()
def set_command(instance: Instance, name: str, output: str, settings: ApplicationSettings) -> None:
    """Change the given limits and allowed origins of an application."""
    if not settings:
        raise click.UsageError("no setting is given: use --rate-messages, --rate-bytes, --address or --certificate")
    with administration(instance, changes=True) as admin:
        changed = applications.set_application(admin, name, settings)
    show_one(row(changed), output)


def _need_patterns(send: tuple[str, ...], pull: tuple[str, ...]) -> None:
    if not send and not pull:
        raise click.UsageError("no grant is given: use --send PATTERN or --pull PATTERN")


@app.command("list")
@page_options
@output_option
@instance_options()
def list_command(instance: Instance, prefix: str, after: str, limit: int, output: str) -> None:
    """List applications, without their secrets."""
    with administration(instance) as admin:
        found = applications.list_applications(admin, prefix, after, limit)
    show_rows([row(each) for each in found], ("name", "keys", "send", "pull"), output)


@app.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one application with the age and last use of its keys, without their secrets.

    The proxies of a running `up` report uses since they started, to within ten minutes.
    """
    with administration(instance) as admin:
        found, version = applications.show(admin, name)
    uses = last_used(instance, name)
    keys: list[dict[str, str | None]] = [
        {"key_id": key.key_id, "created": _utc(key.created_at_ms), "last_used": uses.get(key.key_id)}
        for key in found.keys
    ]
    shown = (
        keys
        if output == "json"
        else [f"{key['key_id']} (created {key['created']}, last used {key['last_used'] or 'unknown'})" for key in keys]
    )
    show_one({**row(found), "keys": shown, "version": version}, output)


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@app.command()
@click.argument("name")
@output_option
@instance_options()
def delete(instance: Instance, name: str, output: str) -> None:
    """Delete an application: its keys are rejected at once."""
    with administration(instance, changes=True) as admin:
        applications.delete(admin, name)
    show_one({"deleted": name}, output)


command = app
