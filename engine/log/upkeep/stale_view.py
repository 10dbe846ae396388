"""Mark of a view that was made while a part of the log was missing: the next start makes it again from the whole log.

DIR/state-stale    empty
"""

import logging

from engine.env.base import Env

logger = logging.getLogger(__name__)


def mark_stale_view(env: Env, directory: str) -> None:
    """Have the next start make the view again. Durable on return."""
    env.open(_path(directory), create=True).close()
    env.sync_directory(directory)


def drop_stale_view(env: Env, directory: str) -> None:
    """Put a marked view aside. Before anything reads it; a crash repeats it."""
    if not env.exists(_path(directory)):
        return
    if env.exists(f"{directory}/state"):
        logger.warning(
            "the view was made while a part of the log was missing, and is made again; it is kept as %s",
            env.set_aside(f"{directory}/state"),
        )
        env.sync_directory(directory)
    env.unlink(_path(directory))
    env.sync_directory(directory)


def _path(directory: str) -> str:
    return f"{directory}/state-stale"
