"""`penstock migrate start`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "start",
    """Begin PLAN: create its topics with Kafka as their home, and copy them into the engine.

    The recipe double_write needs a repair journal at every producer proxy (--journal DIR).

    Senders may move to the producer proxies from then on, one by one: what they send goes to Kafka. Undo: abort.
    """,
)
