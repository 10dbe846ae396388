"""Roles of people that sign in by OpenID Connect: from a claim, by a table of the options."""

from collections.abc import Mapping, Sequence
from typing import Any

from console.roles import ROLE_NAMES, Role


def parse_roles(text: str) -> dict[str, Role]:
    """`VALUE=ROLE,…` as a table. Raises ValueError in a sentence."""
    found = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        value, has_role, role = each.rpartition("=")
        if not has_role or not value or role not in ROLE_NAMES:
            raise ValueError(f"{each!r}: use VALUE=ROLE with a role of {', '.join(ROLE_NAMES)}")
        found[value] = Role.named(role)
    return found


def role_of(claims: Mapping[str, Any], claim: str, roles: Mapping[str, Role]) -> Role:
    """The highest role that the table gives to the claim's values; VIEWER where it gives none."""
    found: Any = claims
    for part in claim.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    values: Sequence[Any] = found if isinstance(found, list) else [found]
    return max((roles[value] for value in values if isinstance(value, str) and value in roles), default=Role.VIEWER)
