"""Roles of accounts, each with the rights of those before it."""

from enum import IntEnum


class Role(IntEnum):
    """NOBODY is a visitor without a session."""

    NOBODY = 0
    VIEWER = 1
    OWNER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> "Role":
        """The role of that name; VIEWER for one of another version, which must not get rights by mistake."""
        return cls[name.upper()] if name in ROLE_NAMES else cls.VIEWER


ROLE_NAMES = ("viewer", "owner", "operator", "admin")
