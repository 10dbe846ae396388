"""History, alerts, silences, channels and notices, API tokens; requests for a change of a topic."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("requests", sa.Column("base", sa.JSON))
    op.add_column("requests", sa.Column("base_version", sa.BigInteger))
    _history()
    _alerts()
    _notices()
    op.create_table(
        "api_tokens",
        sa.Column("id", Id, primary_key=True),
        sa.Column("token_sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("user_id", sa.BigInteger, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("used_ms", sa.BigInteger),
    )
    op.create_index("ix_api_tokens_user_id", "api_tokens", ["user_id"])


def _history() -> None:
    op.create_table(
        "series",
        sa.Column("id", Id, primary_key=True),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
    )
    op.create_index("ix_series_subject", "series", ["subject", "name"], unique=True)
    op.create_table(
        "points",
        sa.Column("step_s", sa.Integer, primary_key=True),
        sa.Column("series_id", sa.BigInteger, sa.ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("begin_s", sa.BigInteger, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_points_begin_s", "points", ["step_s", "begin_s"])


def _alerts() -> None:
    op.create_table(
        "alert_rules",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("is_on", sa.Boolean, nullable=False),
        sa.Column("threshold", sa.Float, nullable=False),
        sa.Column("hold_s", sa.Integer, nullable=False),
    )
    op.create_table(
        "alerts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("rule", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("open_key", sa.String(340), unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("began_ms", sa.BigInteger, nullable=False),
        sa.Column("fired_ms", sa.BigInteger),
        sa.Column("good_since_ms", sa.BigInteger),
        sa.Column("resolved_ms", sa.BigInteger),
        sa.Column("is_told", sa.Boolean, nullable=False),
    )
    op.create_index("ix_alerts_state", "alerts", ["state"])
    op.create_table(
        "silences",
        sa.Column("id", Id, primary_key=True),
        sa.Column("rule", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )


def _notices() -> None:
    op.create_table(
        "channels",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("of_alerts", sa.Boolean, nullable=False),
        sa.Column("of_requests", sa.Boolean, nullable=False),
        sa.Column("is_on", sa.Boolean, nullable=False),
    )
    op.create_table(
        "notices",
        sa.Column("id", Id, primary_key=True),
        sa.Column("channel_id", sa.BigInteger, sa.ForeignKey("channels.id", ondelete="CASCADE"), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.Text, nullable=False, server_default=""),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notices_state", "notices", ["state", "due_ms"])
    op.create_index("ix_notices_channel_id", "notices", ["channel_id"])


def downgrade() -> None:
    for name in ("notices", "channels", "silences", "alerts", "alert_rules", "points", "series", "api_tokens"):
        op.drop_table(name)
    # A request for a change would look like one for a new topic without these.
    op.execute(
        "DELETE FROM request_events WHERE request_id IN (SELECT id FROM requests WHERE base_version IS NOT NULL)"
    )
    op.execute("DELETE FROM requests WHERE base_version IS NOT NULL")
    op.drop_column("requests", "base_version")
    op.drop_column("requests", "base")
