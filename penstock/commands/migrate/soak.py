"""`penstock migrate soak`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "soak",
    """Keep the way back for PLAN: copy the engine's messages to Kafka from the cut on.

    With the recipe double_write proxies do so themselves since the cut: it checks that they can, and have.

    Undo: rollback.
    """,
    gates=True,
)
