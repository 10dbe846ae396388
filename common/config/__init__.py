"""Configuration: one interface, three stores, and the view that processes use.

See docs/design/0004-configuration.md.
"""

from common.config.opening import open_store
from common.config.view import ConfigView

__all__ = ["ConfigView", "open_store"]
