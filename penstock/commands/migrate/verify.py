"""`penstock migrate verify`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "verify",
    """Wait until the copies of PLAN have caught up, and check that every queue has one source.

    It may be repeated. Undo: abort.
    """,
    gates=True,
)
