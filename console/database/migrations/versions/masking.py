"""Rules that hide fields of messages by role."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "masking_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("topics", sa.String(249), nullable=False),
        sa.Column("field", sa.String(300), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("masking_rules")
