"""Operations of every process: logs, pages of metrics and health, the readiness line, the stop signal.

Names are loaded on first use, so that the supervisor can use the logs without gevent.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.ops.log import setup_logging
    from common.ops.metrics import CountsCollector, TopLabels
    from common.ops.ready import announce_ready
    from common.ops.server import OpsServer, start_ops
    from common.ops.settling import settle
    from common.ops.stop import wait_for_stop

_HOME = {
    "CountsCollector": "metrics",
    "OpsServer": "server",
    "TopLabels": "metrics",
    "announce_ready": "ready",
    "settle": "settling",
    "setup_logging": "log",
    "start_ops": "server",
    "wait_for_stop": "stop",
}
__all__ = [
    "CountsCollector",
    "OpsServer",
    "TopLabels",
    "announce_ready",
    "settle",
    "setup_logging",
    "start_ops",
    "wait_for_stop",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
