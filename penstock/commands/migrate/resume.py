"""`penstock migrate resume`."""

from penstock.commands.migrate.work import course_command

command = course_command(
    "resume",
    """Go on with the command of PLAN that a process has left, at its sub-step.
    """,
    gates=True,
    dry_run=False,
)
