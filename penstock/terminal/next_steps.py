"""Next steps, which `penstock` without arguments shows, by what runs here."""

import os

from penstock.terminal.contexts import choose_place
from penstock.terminal.exits import CommandError
from penstock.up.files import read_running


def next_steps() -> str:
    """Commands to paste, each with what it does. Connects to nothing."""
    try:
        place = choose_place(None, None, None, os.environ)
    except CommandError as error:
        return f"{error}\n"
    if place.context is not None and place.config is not None:
        return _shown(f"Commands work on context {place.context.name} ({place.config}).", ELSEWHERE)
    if read_running(place.data) is None:
        return _shown(f"Nothing runs on {place.data} here. Start it, or name a deployment elsewhere:", NOTHING_RUNS)
    return _shown(f"A Penstock serves {place.data}.", RUNNING)


NOTHING_RUNS = (
    ("penstock up", "run everything here, until Ctrl-C"),
    ("penstock up --demo", "the same, with a file sent through"),
    ("penstock context add prod --config URL", "work on a deployment elsewhere"),
    ("penstock doctor", "check this machine"),
)
RUNNING = (
    ("penstock status", "processes, disk, lag"),
    ("penstock topic create orders", "a place for messages"),
    ("penstock send orders 'first message'", "send one"),
    ("penstock pull orders -g readers", "pull as a group"),
    ("penstock message tail orders -f", "watch a topic without a group"),
    ("penstock top", "rates and lag, live"),
)
ELSEWHERE = (
    ("penstock status", "all its processes, disk, lag"),
    ("penstock topic list", "its topics"),
    ("penstock top", "rates and lag, live"),
    ("penstock context list", "other deployments"),
)


def _shown(first: str, steps: tuple[tuple[str, str], ...]) -> str:
    width = max(len(command) for command, _ in steps)
    return "\n".join([first, "", *(f"  {command:<{width}}  # {what}" for command, what in steps), ""])
