"""`penstock app check`: whether an application may send or pull, by which grant, or what it lacks."""

import click

from common.admin import access, applications, families, groups
from common.admin.administrator import Administrator
from common.config.errors import EntryNotFound
from common.dead_letters import is_dead_letter_topic
from common.quoting import escaped
from penstock.terminal import completing
from penstock.terminal.exits import FAILED, Command
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import is_for_scripts, output_option, show_one, show_rows


@click.command("check", cls=Command)
@click.argument("name", shell_complete=completing.applications)
@click.argument("action", type=click.Choice(["send", "pull"]))
@click.argument("topic", shell_complete=completing.topics)
@click.argument("group", required=False, shell_complete=completing.groups)
@output_option
@instance_options()
def check(instance: Instance, name: str, action: str, topic: str, group: str | None, output: str) -> None:
    """Check whether application NAME may send to TOPIC, or pull from it as GROUP.

    Shows the grant that allows each part of the call, or the command that would. The rules are those of the proxies;
    limits, and the origins that `app set` allows, are not looked at. Exit code 0: it may, 1: it may not.

    \b
    penstock app check shop send orders
    penstock app check shop pull orders readers
    """
    if group is not None and action == "send":
        raise click.UsageError("a send has no group: leave out GROUP")
    with administration(instance) as admin:
        app, _ = applications.show(admin, name)
        remarks = remarks_of(admin, topic, group)
    found = access.of_send(app, topic) if action == "send" else access.of_pull(app, topic, group)
    is_allowed = all(each.is_allowed for each in found)
    rows = [
        {"check": each.what, "allowed": "yes" if each.is_allowed else "no", "by": each.grant} for each in found
    ]  # fmt: skip
    remedies = [each.remedy for each in found if each.remedy]
    command = f"penstock app grant {name} {' '.join(remedies)}" if remedies else ""
    if is_for_scripts(output):
        checks = [{"check": each.what, "allowed": each.is_allowed, "grant": each.grant} for each in found]
        show_one({"allowed": is_allowed, "checks": checks, "remedy": command, "remarks": remarks}, output)
    else:
        show_rows(rows, ("check", "allowed", "by"), output)
        for remark in remarks:
            click.echo(escaped(f"note: {remark}"))
        if command:
            click.echo(escaped(f"to allow it: {command}"))
        elif not app.keys:
            click.echo(f"to allow it: penstock app rotate {name}")
    raise SystemExit(0 if is_allowed else FAILED)


def remarks_of(admin: Administrator, topic: str, group: str | None) -> list[str]:
    """What a permitted call would still find: a topic without a definition, a paused group."""
    found = []
    if not is_dead_letter_topic(topic) and not admin.store.taken("topic", [topic]):
        family = families.defining(admin, topic)
        found.append(f"topic {topic} is one of family {family.name}" if family else f"topic {topic} is not defined")
    if group is not None:
        try:
            if groups.show(admin, group)[0].paused:
                found.append(f"group {group} is paused")
        except EntryNotFound:
            found.append(f"group {group} has no definition: it is made by its first pull")
    return found
