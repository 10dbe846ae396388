"""Tables of the console's database. Times are Unix milliseconds; `migrations/` creates what is declared here."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)
Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER keys by itself

teams = Table(
    "teams",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("prefix", String(64), nullable=False, server_default=""),
)
users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("password", Text),  # argon2id in its encoded form; NULL: none was set yet
    Column("is_active", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
memberships = Table(
    "memberships",
    metadata,
    Column("user_id", BigInteger, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("team_id", BigInteger, ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True),
)
sessions = Table(
    "sessions",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("user_id", BigInteger, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("csrf", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, nullable=False),
)
identities = Table(  # of a provider of OpenID Connect
    "identities",
    metadata,
    Column("issuer", String(500), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("user_id", BigInteger, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False),
)
links = Table(
    "links",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("user_id", BigInteger, ForeignKey("users.id", ondelete="CASCADE")),  # NULL: makes the first account
    Column("expires_ms", BigInteger, nullable=False),
)
owners = Table(
    "owners",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("team_id", BigInteger, ForeignKey("teams.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("description", Text, nullable=False),
)
topic_notes = Table(  # what the configuration does not say, see topic_notes.py
    "topic_notes",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("body_schema", Text, nullable=False, server_default=""),
    Column("order_need", String(16), nullable=False, server_default="none"),
    Column("replies", Boolean, nullable=False, server_default=false()),
)
group_owners = Table(
    "group_owners",
    metadata,
    Column("name", String(249), primary_key=True),
    Column("team_id", BigInteger, ForeignKey("teams.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("description", Text, nullable=False),
)
requests = Table(
    "requests",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", String(16), nullable=False, server_default="topic"),  # of what is asked for, see user_requests.py
    Column("name", String(249), nullable=False, index=True),  # of the topic or group
    Column("team_id", BigInteger, ForeignKey("teams.id"), nullable=False, index=True),
    Column("asker", String(64), nullable=False),
    Column("asked", JSON, nullable=False),  # the form
    Column("settings", JSON, nullable=False),  # of the topic or group, as the configuration stores them
    Column("state", String(16), nullable=False, index=True),
    Column("version", Integer, nullable=False),  # grows with each change of the state
    Column("problem", Text, nullable=False, server_default=""),  # why an approved request is not applied yet
    Column("written_version", BigInteger),  # of the topic or group
    Column("kind_versions", JSON),  # number by kind of the configuration: what a process has to have applied
    Column("base", JSON),  # of a change: the settings that the asker saw; NULL: it asks for something new
    Column("base_version", BigInteger),  # and the version that had them
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)
request_events = Table(
    "request_events",
    metadata,
    Column("id", Id, primary_key=True),
    Column("request_id", BigInteger, ForeignKey("requests.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String(64), nullable=False),
    Column("kind", String(16), nullable=False),  # a state, or "comment"
    Column("text", Text, nullable=False),
)
policy = Table(
    "policy",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("value", JSON, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String(64), nullable=False),
)
quotas = Table(  # of teams; one without a row has no bounds
    "quotas",
    metadata,
    Column("team_id", BigInteger, ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),  # grows with each change
    Column("value", JSON, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String(64), nullable=False),
)
masking_rules = Table(
    "masking_rules",
    metadata,
    Column("id", Id, primary_key=True),
    Column("topics", String(249), nullable=False),  # with "*" and "?"
    Column("field", String(300), nullable=False),
    Column("role", String(16), nullable=False),  # the least one that sees the field
)
audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String(64), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", String(300), nullable=False),
    Column("old", JSON),
    Column("new", JSON),
    Index("ix_audit_at_ms", "at_ms"),
)
series = Table(
    "series",
    metadata,
    Column("id", Id, primary_key=True),
    Column("subject", String(300), nullable=False),
    Column("name", String(40), nullable=False),
    Index("ix_series_subject", "subject", "name", unique=True),
)
points = Table(
    "points",
    metadata,
    Column("step_s", Integer, primary_key=True),
    Column("series_id", BigInteger, ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
    Column("begin_s", BigInteger, primary_key=True),
    Column("data", LargeBinary, nullable=False),  # see series_history.py
    Index("ix_points_begin_s", "step_s", "begin_s"),
)
alert_rules = Table(  # what operators have set; a rule without a row has its defaults
    "alert_rules",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("is_on", Boolean, nullable=False),
    Column("threshold", Float, nullable=False),
    Column("hold_s", Integer, nullable=False),
)
alerts = Table(
    "alerts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("rule", String(32), nullable=False),
    Column("subject", String(300), nullable=False),
    Column("open_key", String(340), unique=True),  # rule and subject while it is open, NULL then: one per cause
    Column("state", String(16), nullable=False, index=True),
    Column("value", Float, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("began_ms", BigInteger, nullable=False),
    Column("fired_ms", BigInteger),
    Column("good_since_ms", BigInteger),
    Column("resolved_ms", BigInteger),
    Column("is_told", Boolean, nullable=False),  # whether a notice says that it fires
)
silences = Table(
    "silences",
    metadata,
    Column("id", Id, primary_key=True),
    Column("rule", String(32), nullable=False),  # "*": each
    Column("subject", String(300), nullable=False),  # with "*" for any characters
    Column("reason", Text, nullable=False),
    Column("who", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)
channels = Table(
    "channels",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("target", Text, nullable=False),
    Column("secret", String(64), nullable=False),  # signs; a signer needs it as it is
    Column("of_alerts", Boolean, nullable=False),
    Column("of_requests", Boolean, nullable=False),
    Column("is_on", Boolean, nullable=False),
)
notices = Table(
    "notices",
    metadata,
    Column("id", Id, primary_key=True),
    Column("channel_id", BigInteger, ForeignKey("channels.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("event", String(32), nullable=False),
    Column("title", Text, nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("problem", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_notices_state", "state", "due_ms"),
)
api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("user_id", BigInteger, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger),
)
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("value", String(64), nullable=False),
)
