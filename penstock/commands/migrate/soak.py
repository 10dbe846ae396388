"""`penstock migrate soak`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "soak",
    """Keep the way back for PLAN: copy the engine's messages to Kafka from the cut on.

    Undo: rollback.
    """,
)
