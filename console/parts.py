"""The console's collaborators, and those of the present request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from flask import current_app, g, request
from sqlalchemy import Connection
from werkzeug.exceptions import Forbidden

from common.clock import Clock
from common.operator_proof import NO_KEYS, OperatorKeys
from console.asking.approval_policy import ApprovalPolicy
from console.asking.quota_check import QuotaCheck
from console.asking.request_approval import RequestApproval
from console.asking.request_notices import tell_of_request
from console.database.accounts import Account, Accounts
from console.database.action_log import ActionLog, Actor
from console.database.alert_states import AlertState, AlertStates
from console.database.api_tokens import ApiTokens
from console.database.console_database import ConsoleDatabase
from console.database.identities import Identities
from console.database.masking_rules import MaskingRules
from console.database.notice_queue import NoticeQueue
from console.database.one_time_links import OneTimeLinks
from console.database.policies import ApprovalPolicies
from console.database.series_history import SeriesHistory
from console.database.sessions import Sessions, SignedIn
from console.database.signatures import Signatures
from console.database.team_quotas import TeamQuotas
from console.database.user_requests import UserRequests
from console.installation.broker_queries import BrokerQueries, BrokerState
from console.installation.client_connections import ClientConnections
from console.installation.configuration import Configuration
from console.installation.dead_letters import DeadLetters
from console.installation.delayed_messages import DelayedMessages
from console.installation.group_resets import GroupResets
from console.installation.latest import Latest
from console.installation.live_tail import LiveTail, StreamPlaces
from console.installation.master_switches import MasterSwitches
from console.installation.migration_runs import MigrationRuns
from console.installation.replica_groups import ReplicaState, replica_states
from console.installation.stored_messages import StoredMessages
from console.installation.topics_in_kafka import TopicsInKafka
from console.installation.trial_messages import TrialMessages
from console.roles import Role
from console.security.masking import Mask
from console.security.openid_provider import OpenIdProvider
from console.security.origins import Origins
from console.security.passwords import Passwords
from console.security.sign_in_brake import SignInBrake
from console.watching.alert_watch import AlertWatch
from console.watching.courier import NoticeCourier, alert_notice
from console.watching.engine_figures import EngineFigures
from console.watching.mail import MailSender, MailServer
from console.watching.metrics_pages import MetricsPages
from console.watching.sampler import HistorySampler
from console.watching.webhook import WebhookSender

KEY = "penstock"
STATES_S = 1.0
MAPS_MAX, MAPS_PER_ACCOUNT_MAX = 16, 4


@dataclass(frozen=True)
class ConsoleParts:
    """Everything that pages use; one object for the whole process."""

    clock: Clock
    database: ConsoleDatabase
    log: ActionLog
    accounts: Accounts
    sessions: Sessions
    links: OneTimeLinks
    requests: UserRequests
    policies: ApprovalPolicies
    passwords: Passwords
    brake: SignInBrake
    signatures: Signatures
    origins: Origins
    configuration: Configuration
    brokers: BrokerQueries
    messages: StoredMessages
    trial: TrialMessages
    approval: RequestApproval
    history: SeriesHistory
    sampler: HistorySampler
    alerts: AlertStates
    alert_watch: AlertWatch
    notices: NoticeQueue
    courier: NoticeCourier
    tokens: ApiTokens
    positions: GroupResets
    dead_letters: DeadLetters
    delayed: DelayedMessages
    tail: LiveTail
    masking: MaskingRules
    switches: MasterSwitches
    migrations: MigrationRuns
    broker_states: Latest[list[BrokerState]]
    replica_states: Latest[list[ReplicaState]]
    identities: Identities
    connections: ClientConnections
    map_places: StreamPlaces
    quotas: TeamQuotas
    quota_check: QuotaCheck
    openid: OpenIdProvider | None = None
    """None: people sign in with passwords only."""

    def policy(self) -> tuple[ApprovalPolicy, int]:
        """The policy in force and its version."""
        value, version = self.policies.current()
        return ApprovalPolicy.from_value(value), version


def make_parts(
    clock: Clock, database: ConsoleDatabase, configuration: Configuration, brokers: BrokerQueries, origins: Origins,
    metrics: Sequence[tuple[str, int]] = (), mail: MailServer | None = None, networks: Sequence[str] = (), url: str = "",
    operators: OperatorKeys = NO_KEYS, controller_key: bytes = b"", migrations: MigrationRuns | None = None,
    homes: TopicsInKafka | None = None,
) -> ConsoleParts:  # fmt: skip
    """Compose the parts that follow from these.

    Args:
        metrics: operators' ports of the processes, for charts and alerts. mail: the server; None: none is sent.
        networks: networks that are not public and that webhooks may go to.
        url: where browsers reach the console, for links in notices.
        operators: to close connections. controller_key: for planned switches. Without them neither can be made.
        migrations: begins commands of plans; None: none can be begun.
        homes: creates topics whose home is a Kafka cluster; None: none can be created.
    """
    log = ActionLog(database, clock)
    notices = NoticeQueue(database, log, clock)

    def tell(connection: Connection, event: str, alert: AlertState) -> None:
        notices.put(connection, event, *alert_notice(event, alert))

    states = AlertStates(database, log, clock, tell)
    history, quotas = SeriesHistory(database), TeamQuotas(database, log, clock)
    sampler = HistorySampler(history, EngineFigures(brokers), MetricsPages(metrics))
    accounts, requests = Accounts(database, log, clock), UserRequests(database, log, clock)
    requests.on_event = partial(tell_of_request, notices)
    return ConsoleParts(
        clock, database, log, accounts, Sessions(database, accounts, clock), OneTimeLinks(database, clock), requests,
        ApprovalPolicies(database, log, clock), Passwords(), SignInBrake(clock.monotonic_s),
        Signatures(database), origins, configuration, brokers,
        StoredMessages(brokers), TrialMessages(configuration),
        RequestApproval(requests, configuration.store, clock, homes or TopicsInKafka(())),
        history, sampler, states, AlertWatch(states, clock), notices,
        NoticeCourier(notices, WebhookSender(networks), MailSender(mail or MailServer()), url),
        ApiTokens(database, accounts, log, clock),
        GroupResets(brokers), DeadLetters(brokers), DelayedMessages(brokers), LiveTail(brokers),
        MaskingRules(database, log), MasterSwitches(configuration.url, controller_key),
        migrations or MigrationRuns(None, ()),
        Latest(brokers.states, STATES_S, clock.monotonic_s),
        Latest(partial(replica_states, configuration.url), STATES_S, clock.monotonic_s),
        Identities(database, accounts, log, clock), ClientConnections(configuration, operators),
        StreamPlaces("live maps", MAPS_MAX, MAPS_PER_ACCOUNT_MAX), quotas,
        QuotaCheck(quotas, configuration.rate_of),
    )  # fmt: skip


def parts() -> ConsoleParts:
    """The process's parts, within a request."""
    found: ConsoleParts = current_app.extensions[KEY]
    return found


def signed_in() -> SignedIn | None:
    """The session of the present request."""
    found: SignedIn | None = g.get("session")
    return found


def account() -> Account:
    """The account that is signed in. Every endpoint above Role.NOBODY has one."""
    found = signed_in()
    if found is None:
        raise Forbidden()
    return found.account


def actor() -> Actor:
    """The account as the author of an action."""
    return Actor(account().name, address())


def address() -> str:
    """The network address that the present request comes from."""
    return request.remote_addr or ""


def form() -> Mapping[str, str]:
    """The fields of the present request's form; of repeated ones the first."""
    return request.form


def may_use_topic(topic: str) -> bool:
    """Whether the account may read and send messages of a topic: operators, and the team that owns it."""
    own = account()
    if own.role >= Role.OPERATOR:
        return True
    owner = parts().requests.owner_of(topic)
    return own.role >= Role.OWNER and owner is not None and own.is_in(owner[0])


def mask(topic: str) -> Mask:
    """The fields of a topic's messages that the account does not see."""
    return parts().masking.mask(topic, account().role)


def may_use_topics(topics: list[str]) -> bool:
    """Whether the account may act on a group that reads these topics: operators, and the team that owns all of them."""
    return account().role >= Role.OPERATOR or (bool(topics) and all(may_use_topic(topic) for topic in topics))


def may_act_on_group(name: str, topics: list[str]) -> bool:
    """Whether the account may act on a group: as of its topics, and the team that asked for the group."""
    own = account()
    owner = parts().requests.owner_of_group(name) if own.role >= Role.OWNER else None
    return may_use_topics(topics) or (owner is not None and own.is_in(owner[0]))
