"""`penstock migrate cut`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "cut",
    """Move the topics of PLAN to the engine: fence, drain the copies, change the home.

    Nothing is lost at any point: a cut that cannot go on lifts its fence, and the topics stay where they are. Undo:
    rollback.
    """,
    gates=True,
)
