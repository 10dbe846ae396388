"""`penstock migrate retire`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "retire",
    """End PLAN: its topics stay in the engine, the copies end and there is no way back.

    The recipe double_write fences the topics once more, and proxies write to the engine alone from then on.

    It is refused before the plan's time of soaking has passed, and when records came to Kafka after the cut.
    """,
    gates=True,
)
