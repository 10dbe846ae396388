"""Renewal: a slave puts its whole log aside, since its master has deleted what it lacks or it cannot be opened.

The order is durable before anything is changed, and every start that finds it carries it out first. Each step can be
repeated. The log is copied anew afterwards. Design: docs/design/0032-repair-from-a-peer.md.

    DIR/renew                           number of the folder, decimal
    DIR/diverged/renewed-N/log/*.seg    the old log: a directory that the tools of the log can read
"""

import logging
from contextlib import suppress

from engine.env.base import Env
from engine.log.segment.segment import write_whole
from engine.log.segment.side_files import SUFFIX

logger = logging.getLogger(__name__)


def order_renewal(env: Env, directory: str) -> None:
    """Order it. The log must be closed. Durable on return. Raises OSError."""
    number = 1
    while env.list(_folder(directory, number)):
        number += 1
    path = _order_path(directory)
    file = env.open(path + ".tmp", create=True)
    try:
        write_whole(file, b"%d" % number)
        file.sync()
    finally:
        file.close()
    env.rename(path + ".tmp", path)
    env.sync_directory(directory)


def resume_renewal(env: Env, directory: str) -> bool:
    """Carry out the order, if there is one; whether there was. Durable on return. Raises OSError."""
    path = _order_path(directory)
    if not env.exists(path):
        return False
    file = env.open(path)
    number = 0  # a damaged order: any folder will do
    with suppress(ValueError):
        number = int(file.read_at(file.size(), 0))
    file.close()
    log, folder = f"{directory}/log", _folder(directory, number)
    if env.exists(f"{directory}/state"):
        env.set_aside(f"{directory}/state")
        env.sync_directory(directory)
    env.make_directory(folder)
    for name in env.list(log):
        if name.endswith(SUFFIX):
            env.rename(f"{log}/{name}", f"{folder}/{name}")
        else:
            env.unlink(f"{log}/{name}")
    env.sync_directory(folder)
    env.sync_directory(log)
    env.unlink(path)
    env.sync_directory(directory)
    logger.warning("the log was put aside as %s: it is copied anew from the master", folder)
    return True


def _folder(directory: str, number: int) -> str:
    return f"{directory}/diverged/renewed-{number}/log"


def _order_path(directory: str) -> str:
    return f"{directory}/renew"
