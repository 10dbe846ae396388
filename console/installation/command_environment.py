"""The environment of the commands that the console begins as processes."""

import os

WHO_VARIABLE = "PENSTOCK_WHO"
SECRETS = ("PENSTOCK_CONSOLE_DATABASE", "PENSTOCK_CONSOLE_SMTP_PASSWORD", "PENSTOCK_CONSOLE_OPENID_SECRET")


def environment_of(who: str) -> dict[str, str]:
    """The console's own, without its secrets. `who`: the person, as the author of changes; empty: nothing is changed."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return {**kept, "PYTHONUNBUFFERED": "1", **({WHO_VARIABLE: f"console:{who}"} if who else {})}
