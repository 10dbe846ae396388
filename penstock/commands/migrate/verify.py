"""`penstock migrate verify`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "verify",
    """Wait until the copies of PLAN have caught up, and check that every queue has one source.

    The recipe double_write then fences the topics once, for about a second, and has the proxies write to both sides from
    there on; it ends when no repair journal holds a message of the topics.

    It may be repeated. Undo: abort.
    """,
    gates=True,
)
