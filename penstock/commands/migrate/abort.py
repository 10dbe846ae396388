"""`penstock migrate abort`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "abort",
    """Give PLAN up before its topics have moved: remove fences, copies, secondaries and marks.

    Topics that the plan has created stay, with Kafka as their home: senders may use them already.
    """,
    gates=True,
)
