"""The engine's page of metrics. Counters are plain integers where they are counted; a scrape reads them here.

name | type, unit | what to do about it
penstock_engine_appends_total | requests | –
penstock_engine_appended_batches_total | batches | –
penstock_engine_appended_messages_total | messages | –
penstock_engine_appended_bytes_total | bytes | size the disk by it
penstock_engine_pulls_total | requests | many without deliveries: consumers poll without wait_ms
penstock_engine_deliveries_total | messages | –
penstock_engine_delivered_bytes_total | bytes | –
penstock_engine_acks_total | messages | well below deliveries: consumers do not finish
penstock_engine_redeliveries_total | messages | rising: the invisible time is too short, or consumers crash
penstock_engine_released_total | messages | rising: consumers leave, or read too slowly, before they have their answers
penstock_engine_passed_over_total | messages | messages that groups' filters skipped; far above deliveries: a separate topic is cheaper
penstock_engine_dead_letters_total | messages | rising: consumers cannot cope; `penstock group dead-letters list` says why
penstock_engine_stale_receipts_total | ranges | rising: the same; a jump: a client forges receipts
penstock_engine_backlogged_topics | now, of the topics that proxies ask about | above 0: required groups are too slow; the log names them
penstock_engine_backlogs_total | openings of backlog breakers | many: a bound is near the usual lag of a group
penstock_engine_expired_requests_total | requests, answered ones too | many: consumers are slower than the callers' deadlines
penstock_engine_forwarded_replies_total | replies | –
penstock_engine_forgotten_groups_total | groups | names that clients make up; `--expire-days` rules it
penstock_engine_forgotten_topics_total | topics | names that clients make up; `--expire-days` rules it
penstock_engine_parked_pulls | requests that wait, now | –
penstock_engine_link_connections | connections, now | –
penstock_engine_forbidden_requests_total | of links whose role may not | above 0: a process is wrong, or taken over; the log names it
penstock_engine_cold_read_bytes_total | bytes | near --cold-mib-s: late readers wait for the budget; a larger one takes the disk from writes
penstock_engine_borrowed_read_bytes_total | bytes of cold reads that a slave has lent in place of this disk | –
penstock_engine_log_segments | files, now | –
penstock_engine_log_bytes | bytes | –
penstock_engine_log_side_bytes | bytes of index, id and look-up files | –
penstock_engine_log_earliest_timestamp_seconds | Unix time | later than now minus the retention: segments were deleted early
penstock_engine_deleted_segments_total | files | –
penstock_engine_deleted_bytes_total | bytes | –
penstock_engine_early_deleted_segments_total | files | rising: messages go before their retention ends; enlarge the disk, or shorten it
penstock_engine_disk_free_bytes | bytes | –
penstock_engine_disk_level | 0 fine, 1 warning, 2 segments go early, 3 appends are refused | above 0: free space
penstock_engine_retention_held | 0 or 1 | above 0: old segments are kept; `penstock retention show` says why
penstock_engine_clock_ahead_seconds | seconds | above 0: the wall clock was set ahead and does not count yet: see `penstock retention`
penstock_engine_scrubbed_bytes_total | bytes | does not rise for long: the scrub has ended, see the log
penstock_engine_scrub_damage_total | places | above 0: a disk loses data; the log names them, `penstock log verify` says more
penstock_engine_unreadable_reads_total | reads | above 0: a disk fails; the log names the files
penstock_engine_unreadable_batches_total | batches | above 0: a disk fails; the log names the files
penstock_engine_unknown_batches_total | not stored: the view was unreadable | above 0: a disk fails under the folder `state`
penstock_engine_duplicates_total | messages | rising: clients send again what was stored; look for their timeouts
penstock_engine_ids | ids, now | near --id-window-mib: the window is about to become shorter
penstock_engine_id_bytes | bytes of memory | near --id-window-mib: the window is about to become shorter
penstock_engine_ids_forgotten_total | ids, at most | above 0: ids were forgotten before their window had passed; raise --id-window-mib
penstock_engine_look_ups_total | requests by id or key | –
penstock_engine_look_up_read_bytes_total | bytes of segments without files | rises with each: --look-up is off, or files are being made
penstock_engine_name_files_made_total | files | –
penstock_engine_name_runs_made_total | partial files | –
penstock_engine_name_file_bytes_total | bytes written to both | –
penstock_engine_name_files_waiting | to be made | does not fall: segments fill faster, or the disk is near its delete mark
penstock_engine_name_file_damage_total | files | above 0: a disk loses data; the files are rebuilt automatically
penstock_engine_timers_pending | now | memory: 30 bytes each
penstock_engine_timers_added_total | messages | –
penstock_engine_timers_fired_total | messages | –
penstock_engine_timers_cancelled_total | messages | –
penstock_engine_timers_carried_total | messages stored again to free an old segment | –
penstock_engine_timers_duplicates_total | messages | due, but another send had stored the id meanwhile; counted as fired, too
penstock_engine_lost_turns_total | queues of groups | above 0: an error of the engine, mended within seconds; report it with the log's line
penstock_engine_timers_lost_total | messages | above 0: a disk has lost delayed messages; the log names them
penstock_engine_timers_late_seconds_total | seconds | total / fired above 0.02: the engine's core is full
penstock_engine_timers_late_seconds_max | seconds | –
penstock_engine_append_seconds | histogram from an APPEND's arrival to its answer, s | for MEMORY above 1 ms: the core is full
penstock_engine_sync_seconds | histogram of the log's syncs, s | what FSYNC costs at the least; growing: the disk is busy or fails
penstock_engine_pull_seconds | histogram of serving a PULL without its wait, s | above 1 ms: filters, cold reads, a full core
penstock_engine_log_end_position_bytes | bytes | far apart for long: the disk is slow
penstock_engine_log_durable_position_bytes | bytes | far apart for long: the disk is slow
"""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from engine.env.durations import BOUNDS_S
from engine.env.native import Durations
from engine.log.upkeep.scrub import ScrubCounts
from engine.node import Node
from engine.server.server import LinkServer
from engine.timers.timers import Timers

_PREFIX = "penstock_engine_"
FORBIDDEN = "Requests that the role of their link may not make."


class EngineMetrics:
    """A Prometheus collector over one engine, without the series of groups and topics."""

    def __init__(self, node: Node, server: LinkServer, scrub: ScrubCounts) -> None:
        self._node, self._server, self._scrub = node, server, scrub

    def collect(self) -> Iterator[Metric]:
        timer_counters, timer_gauges = _of_timers(self._node.timers)
        for name, (value, text) in (self._counters() | timer_counters).items():
            yield CounterMetricFamily(_PREFIX + name, text, value=value)
        for name, (value, text) in (self._gauges() | timer_gauges).items():
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        for name, (times, text) in self._durations().items():
            yield _histogram(name, times, text)

    def _durations(self) -> dict[str, tuple[Durations, str]]:
        node = self._node
        return {
            "append_seconds": (node.append.times, "From an APPEND's arrival to its answer."),
            "sync_seconds": (node.store.writer.durability.syncer.times, "Syncs of the log."),
            "pull_seconds": (node.pulls.times, "Serving a PULL, without its wait for messages."),
        }

    def _counters(self) -> dict[str, tuple[float, str]]:
        node, turn = self._node, self._server.turn
        counts, store, exchange = node.delivery.counts, node.store, node.exchange
        retention, ids, made = store.retention, store.appender.ids, store.look_up.maker.counts
        return {
            "scrubbed_bytes": (self._scrub.bytes, "Bytes of sealed segments read again and verified."),
            "scrub_damage": (self._scrub.damage, "Damaged places that the scrub found in segments and indexes."),
            "unreadable_reads": (store.reader.unreadable.errors, "Reads of records that the disk refused."),
            "unreadable_batches": (store.reader.unreadable.lost, "Batches skipped after a minute of refused reads."),
            "unknown_batches": (store.appender.unknown_batches, "Batches not stored because the view was unreadable."),
            "cold_read_bytes": (store.cold.bytes_fetched, "Bytes fetched for readers far behind the end."),
            "borrowed_read_bytes": (store.cold.bytes_borrowed, "Bytes for the same readers that slaves have lent."),
            "deleted_segments": (retention.deleted_segments, "Segments deleted."),
            "deleted_bytes": (retention.deleted_bytes, "Size of deleted segments."),
            "early_deleted_segments": (retention.early_segments, "Segments deleted before their retention ended."),
            "duplicates": (ids.hits, "Messages not stored because their id was seen before."),
            "ids_forgotten": (ids.forgotten, "Ids forgotten before the end of their window, at most."),
            "look_ups": (node.look_ups.requests, "Requests for messages by id or key."),
            "look_up_read_bytes": (node.look_ups.read_bytes, "Bytes of segments read for lack of look-up files."),
            "name_files_made": (made.files, "Look-up files made for sealed segments."),
            "name_runs_made": (made.runs, "Partial look-up files made for the open segment."),
            "name_file_bytes": (made.written_bytes, "Bytes written to look-up files, partial ones included."),
            "name_file_damage": (made.damage, "Look-up files found missing or damaged."),
            "appends": (turn.appends, "APPEND requests."),
            "appended_batches": (turn.batches, "Batches stored."),
            "appended_messages": (turn.messages, "Messages stored."),
            "appended_bytes": (turn.bytes, "Bytes of stored batches."),
            "pulls": (counts.pulls, "PULL requests."),
            "deliveries": (counts.deliveries, "Messages delivered, redeliveries included."),
            "delivered_bytes": (counts.delivered_bytes, "Bytes of records delivered."),
            "acks": (counts.acks, "Messages acknowledged, delayed for a retry, or extended."),
            "redeliveries": (counts.redeliveries, "Messages delivered for the second time or later."),
            "released": (counts.released, "Messages that a proxy gave back because no client saw them; not attempts."),
            "passed_over": (counts.passed_over, "Messages that a group's filter skipped, counted per group."),
            "dead_letters": (counts.dead_letters, "Messages moved to their group's dead letters."),
            "stale_receipts": (counts.stale_receipts, "Acknowledgements refused as stale or forged."),
            "lost_turns": (node.groups.lost_turns.found, "Queues of groups that had messages and were not looked at."),
            "forgotten_groups": (node.groups.expired, "Forgotten groups: without a definition, and not used."),
            "forgotten_topics": (node.topics.expired, "Forgotten topics: of families, empty, and not used."),
            "backlogs": (node.backlog_breakers.opened, "Times that a topic became backlogged."),
            "expired_requests": (exchange.requests.expired, "Requests not delivered, since their deadline had passed."),
            "forbidden_requests": (node.handshake.keys.forbidden, FORBIDDEN),
            "forwarded_replies": (exchange.forwarded, "Replies forwarded to the waiting proxies."),
        }

    def _gauges(self) -> dict[str, tuple[float, str]]:
        store = self._node.store
        retention, ids = store.retention, store.appender.ids
        return {
            "log_segments": (retention.segments, "Segment files that hold messages."),
            "log_bytes": (retention.log_bytes, "Size of the segment files."),
            "log_side_bytes": (retention.side_bytes, "Size of index, id and look-up files."),
            "log_earliest_timestamp_seconds": (retention.earliest_ms / 1000, "Creation time of the oldest segment."),
            "disk_free_bytes": (retention.disk.free, "Free bytes on the log's disk."),
            "disk_level": (
                int(retention.disk.level),
                "Fill level of the log's disk, from 0 to 3 (appends refused).",
            ),
            "retention_held": (int(bool(retention.held)), "Whether segments are kept that otherwise would be too old."),
            "clock_ahead_seconds": (retention.clock_ahead_ms / 1000, "Step of the wall clock that does not count yet."),
            "ids": (ids.count, "Ids that sends are checked against."),
            "id_bytes": (ids.size_bytes, "Memory of these ids."),
            "backlogged_topics": (self._node.backlog_breakers.open, "Topics whose required group lags too far."),
            "name_files_waiting": (store.look_up.maker.waiting, "Look-up files still to be made."),
            "parked_pulls": (self._node.delivery.parked, "Pulls that wait for messages."),
            "link_connections": (len(self._server.connections), "Open link connections."),
            "log_end_position_bytes": (store.end_position, "Log bytes in the page cache."),
            "log_durable_position_bytes": (store.durable_position, "Log bytes on the disk."),
        }

    def describe(self) -> list[Metric]:
        """No metrics: registering the collector reads nothing."""
        return []


def _histogram(name: str, times: Durations, text: str) -> Metric:
    counts = list(accumulate(times.counts))
    family = HistogramMetricFamily(_PREFIX + name, text)
    family.add_metric([], list(zip((*map(repr, BOUNDS_S), "+Inf"), counts, strict=True)), times.total_ns / 1e9)
    return family


def _of_timers(timers: Timers) -> tuple[dict[str, tuple[float, str]], dict[str, tuple[float, str]]]:
    """Counters and gauges of delayed messages."""
    counts = timers.counts
    counters: dict[str, tuple[float, str]] = {
        "timers_added": (counts.added, "Delayed messages accepted."),
        "timers_fired": (counts.fired, "Delayed messages delivered to their queues."),
        "timers_duplicates": (
            counts.duplicates,
            "Delayed messages not stored when due, because the topic had their id already.",
        ),
        "timers_cancelled": (counts.cancelled, "Delayed messages cancelled."),
        "timers_carried": (counts.carried, "Delayed messages stored again, so that an old segment could be deleted."),
        "timers_lost": (counts.lost, "Delayed messages whose bytes did not verify."),
        "timers_late_seconds": (counts.late_ms / 1000, "Total time between due and delivered."),
    }
    gauges: dict[str, tuple[float, str]] = {
        "timers_pending": (len(timers.table), "Delayed messages that are not due yet."),
        "timers_late_seconds_max": (counts.late_ms_max / 1000, "Longest time between due and delivered."),
    }
    return counters, gauges
