"""`penstock migrate fence`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "fence",
    """Fence the topics of PLAN and drain its copies, without a change of their home.

    Senders get FENCED, or BUFFERED where a topic has a fallback buffer. A fence ends by itself. Undo: abort, or wait.
    """,
    gates=True,
)
