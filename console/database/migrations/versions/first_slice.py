"""Accounts, requests for topics, owners, policy, audit.

The tables are written out and not taken from `schema.py`: a revision must not change when the schema does.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _accounts()
    _requests()
    op.create_table(
        "audit",
        sa.Column("id", Id, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("old", sa.JSON),
        sa.Column("new", sa.JSON),
    )
    op.create_index("ix_audit_at_ms", "audit", ["at_ms"])


def _accounts() -> None:
    op.create_table(
        "teams",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("prefix", sa.String(64), nullable=False, server_default=""),
    )
    op.create_table(
        "users",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("password", sa.Text),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memberships",
        sa.Column("user_id", sa.BigInteger, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("team_id", sa.BigInteger, sa.ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True),
    )
    op.create_table(
        "sessions",
        sa.Column("token_sha256", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.BigInteger, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("csrf", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("used_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_table(
        "links",
        sa.Column("token_sha256", sa.String(64), primary_key=True),
        sa.Column("user_id", sa.BigInteger, sa.ForeignKey("users.id", ondelete="CASCADE")),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
    )


def _requests() -> None:
    op.create_table(
        "owners",
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("team_id", sa.BigInteger, sa.ForeignKey("teams.id", ondelete="CASCADE"), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
    )
    op.create_index("ix_owners_team_id", "owners", ["team_id"])
    op.create_table(
        "requests",
        sa.Column("id", Id, primary_key=True),
        sa.Column("topic", sa.String(249), nullable=False),
        sa.Column("team_id", sa.BigInteger, sa.ForeignKey("teams.id"), nullable=False),
        sa.Column("asker", sa.String(64), nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("problem", sa.Text, nullable=False, server_default=""),
        sa.Column("topic_version", sa.BigInteger),
        sa.Column("kind_version", sa.BigInteger),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
    )
    for column in ("topic", "team_id", "state"):
        op.create_index(f"ix_requests_{column}", "requests", [column])
    op.create_table(
        "request_events",
        sa.Column("id", Id, primary_key=True),
        sa.Column("request_id", sa.BigInteger, sa.ForeignKey("requests.id", ondelete="CASCADE"), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_request_events_request_id", "request_events", ["request_id"])
    op.create_table(
        "policy",
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    for name in (
        "audit", "policy", "request_events", "requests", "owners", "links", "sessions", "memberships", "users", "teams",
    ):  # fmt: skip
        op.drop_table(name)
