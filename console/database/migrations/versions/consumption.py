"""Requests for consumption: kinds of requests, numbers of several kinds to apply, owners of groups."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"
_REQUESTS = sa.table(
    "requests", sa.column("id", sa.BigInteger), sa.column("kind_version", sa.BigInteger),
    sa.column("kind_versions", sa.JSON),
)  # fmt: skip


def upgrade() -> None:
    op.add_column("requests", sa.Column("kind", sa.String(16), nullable=False, server_default="topic"))
    op.add_column("requests", sa.Column("kind_versions", sa.JSON))
    connection, columns = op.get_bind(), _REQUESTS.c
    for row in connection.execute(
        sa.select(columns.id, columns.kind_version).where(columns.kind_version.isnot(None))
    ).all():
        numbers = {"topic": row.kind_version}
        connection.execute(sa.update(_REQUESTS).where(columns.id == row.id).values(kind_versions=numbers))
    op.drop_column("requests", "kind_version")
    _rename("topic", "name", "topic_version", "written_version")
    op.create_table(
        "group_owners",
        sa.Column("name", sa.String(249), primary_key=True),
        sa.Column("team_id", sa.BigInteger, sa.ForeignKey("teams.id", ondelete="CASCADE"), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
    )
    op.create_index("ix_group_owners_team_id", "group_owners", ["team_id"])


def _rename(name: str, name_after: str, version: str, version_after: str) -> None:
    op.drop_index(f"ix_requests_{name}", "requests")
    op.execute(f"ALTER TABLE requests RENAME COLUMN {name} TO {name_after}")
    op.execute(f"ALTER TABLE requests RENAME COLUMN {version} TO {version_after}")
    op.create_index(f"ix_requests_{name_after}", "requests", [name_after])


def downgrade() -> None:
    op.drop_table("group_owners")
    # A request for consumption would look like one for a topic.
    others = "SELECT id FROM requests WHERE kind <> 'topic'"
    op.execute(f"DELETE FROM request_events WHERE request_id IN ({others})")
    op.execute("DELETE FROM requests WHERE kind <> 'topic'")
    _rename("name", "topic", "written_version", "topic_version")
    op.add_column("requests", sa.Column("kind_version", sa.BigInteger))
    connection, columns = op.get_bind(), _REQUESTS.c
    for row in connection.execute(sa.select(columns.id, columns.kind_versions)).all():
        if row.kind_versions:
            number = row.kind_versions["topic"]
            connection.execute(sa.update(_REQUESTS).where(columns.id == row.id).values(kind_version=number))
    op.drop_column("requests", "kind_versions")
    op.drop_column("requests", "kind")
