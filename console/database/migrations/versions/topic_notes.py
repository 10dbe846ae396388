"""Notes on topics beside the configuration."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    op.create_table(
        "topic_notes",
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("body_schema", sa.Text, nullable=False, server_default=""),
        sa.Column("order_need", sa.String(16), nullable=False, server_default="none"),
        sa.Column("replies", sa.Boolean, nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    op.drop_table("topic_notes")
