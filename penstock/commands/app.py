"""`penstock app`: applications, their keys and what they may do."""

from datetime import UTC, datetime
from typing import Any

import click

from common.admin import applications
from common.admin.applications import ApplicationSettings, Grants, NewKey
from common.config.definitions import ApplicationDefinition
from penstock.commands.exits import Group
from penstock.commands.instance import Instance, administration, instance_options
from penstock.commands.key_ages import last_used
from penstock.commands.output import output_option, show_one, show_rows
from penstock.commands.rates import rate_options


def row(app: ApplicationDefinition) -> dict[str, Any]:
    return {
        "name": app.name,
        "keys": [key.key_id for key in app.keys],
        "send": [grant.pattern for grant in app.grants if grant.action == "send"],
        "pull": [grant.pattern for grant in app.grants if grant.action == "pull"],
        **{name: value for name in ("rate_messages", "rate_bytes") if (value := getattr(app, name))},
        **{name: list(value) for name in ("addresses", "certificates") if (value := getattr(app, name))},
    }


def grant_options(command: Any) -> Any:
    for option in (
        click.option(
            "--pull", multiple=True, metavar="PATTERN", help="Topics and groups that it may pull; repeatable."
        ),
        click.option("--send", multiple=True, metavar="PATTERN", help="Topics that it may send to; repeatable."),
    ):
        command = option(command)
    return command


def show_secret(key: NewKey, output: str) -> None:
    show_one({"app": key.app, "key_id": key.key_id, "secret": key.secret}, output)
    if output == "table":
        click.echo("The secret is not shown again: keep it in a file that only its user reads.", err=True)


@click.group(cls=Group)
def app() -> None:
    """Applications: who may send and pull what. A PATTERN is a name, or a prefix with * behind it.

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
    """Create application NAME and print its first key. It may do nothing until it is granted something."""
    with administration(instance, changes=True) as admin:
        key = applications.create(admin, name, Grants(send, pull))
    show_secret(key, output)


@app.command()
@click.argument("name")
@output_option
@instance_options()
def rotate(instance: Instance, name: str, output: str) -> None:
    """Add a second key and print it; the first lives on until it is revoked."""
    with administration(instance, changes=True) as admin:
        key = applications.rotate(admin, name)
    show_secret(key, output)


@app.command()
@click.argument("name")
@click.argument("key_id")
@output_option
@instance_options()
def revoke(instance: Instance, name: str, key_id: str, output: str) -> None:
    """Refuse a key from now on."""
    with administration(instance, changes=True) as admin:
        changed = applications.revoke(admin, name, key_id)
    show_one(row(changed), output)


@app.command()
@click.argument("name")
@grant_options
@output_option
@instance_options()
def grant(instance: Instance, name: str, send: tuple[str, ...], pull: tuple[str, ...], output: str) -> None:
    """Allow more. A pull needs a grant for its group and for each of its topics."""
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
    """Take grants back, by the patterns that they were given with."""
    _need_patterns(send, pull)
    with administration(instance, changes=True) as admin:
        changed = applications.ungrant(admin, name, Grants(send, pull))
    show_one(row(changed), output)


@app.command("set")
@click.argument("name")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="NETWORK",
    help="Where it may call from, as in 10.1.0.0/16; repeatable, replaces the list. An empty one: from anywhere.",
)
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    metavar="NAME",
    help="A name that the certificate of its TLS connections has to bear; repeatable, replaces the list. An empty one: none is needed.",
)
@rate_options("Taken", "send")[0]
@rate_options("Taken", "send")[1]
@output_option
@instance_options()
def set_command(
    instance: Instance,
    name: str,
    addresses: tuple[str, ...],
    certificates: tuple[str, ...],
    rate_messages: int | None,
    rate_bytes: int | None,
    output: str,
) -> None:
    """Limit what an application sends and where it calls from; what is not named stays."""
    lists = (tuple(filter(None, each)) if each else None for each in (addresses, certificates))
    settings = ApplicationSettings(rate_messages, rate_bytes, *lists)
    if not settings.given():
        raise click.UsageError("say what to set: --rate-messages, --rate-bytes, --address or --certificate")
    with administration(instance, changes=True) as admin:
        changed = applications.set_application(admin, name, settings)
    show_one(row(changed), output)


def _need_patterns(send: tuple[str, ...], pull: tuple[str, ...]) -> None:
    if not send and not pull:
        raise click.UsageError("say what: --send PATTERN or --pull PATTERN")


@app.command("list")
@click.option("--prefix", default="", help="Only names that begin so.")
@click.option("--after", default="", metavar="NAME", help="The next page: names behind this one.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@output_option
@instance_options()
def list_command(instance: Instance, prefix: str, after: str, limit: int, output: str) -> None:
    """List applications, never their secrets."""
    with administration(instance) as admin:
        found = applications.list_applications(admin, prefix, after, limit)
    show_rows([row(each) for each in found], ("name", "keys", "send", "pull"), output)


@app.command()
@click.argument("name")
@output_option
@instance_options()
def show(instance: Instance, name: str, output: str) -> None:
    """Show one application with its keys' ages and last uses, never their secrets.

    A use is known from the proxies of a running `up`, since their start, to within ten minutes.
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
        else [
            f"{key['key_id']} (created {key['created']}, last used {key['last_used'] or 'not known'})" for key in keys
        ]
    )
    show_one({**row(found), "keys": shown, "version": version}, output)


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@app.command()
@click.argument("name")
@output_option
@instance_options()
def delete(instance: Instance, name: str, output: str) -> None:
    """Delete an application: its keys are refused at once."""
    with administration(instance, changes=True) as admin:
        applications.delete(admin, name)
    show_one({"deleted": name}, output)


command = app
