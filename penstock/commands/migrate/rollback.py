"""`penstock migrate rollback`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "rollback",
    """Move the topics of PLAN back to Kafka: copy back, fence, drain, change the home.

    Undo: verify and cut again.
    """,
    gates=True,
)
