"""Quotas of teams."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("team_id", sa.BigInteger, sa.ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("value", sa.JSON, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("quotas")
