"""Seeded bugs of a broker group: what `python -m tests.sim.mutants` puts into the code, one at a time.

Each text occurs once in its module.
"""

from tests.sim.mutations import Mutant

_CONFIRMATION = (
    Mutant(
        "confirms without a member that is lost", "engine.replication.confirmation",
        "            if stored is None:\n                return False\n",
        "            if stored is None:\n                continue\n",
    ),
    Mutant(
        "confirms what only the master has", "engine.replication.confirmation",
        "            end, synced = min(end, stored.end), min(synced, stored.synced)\n",
        "            synced = min(synced, stored.synced)\n",
    ),
    Mutant(
        "a lone master counts as synced at once",
        "engine.replication.confirmation",
        "return self._record is not None and self._synced >= self._settled_at",
        "return self._record is not None",
    ),
    Mutant(
        "what an earlier process of a member has told counts", "engine.replication.confirmation",
        " or stored.incarnation != self._awaited.get(member):", ":",
    ),
    Mutant(
        "a member joins by its page cache", "engine.replication.confirmation",
        "stored.synced >= self._adopted_at", "stored.end >= self._adopted_at",
    ),
    Mutant(
        "a master does not wait for members that join", "common.cluster.group_record",
        "(*self.in_sync.items(), *self.joining.items())", "self.in_sync.items()",
    ),
)  # fmt: skip
_OUTPUT = (
    Mutant(
        "output is not held", "engine.ops.output_hold",
        "found = None if state.role in UNHELD_ROLES else hold", "found = None",
    ),
    Mutant(
        "the first held output leaves at any confirmation", "engine.ops.output_hold",
        "        while entries and entries[0].end <= self.confirmed:\n", "        while entries:\n",
    ),
    Mutant(
        "output leaves one batch early", "engine.ops.output_hold",
        "            if end <= self.confirmed:\n", "            if end <= self.confirmed + 400:\n",
    ),
    Mutant(
        "replicated sends of a lone master do not wait for its disk", "engine.ops.stored",
        "not (durability == layout.REPLICATED and self.is_replicated)", "durability != layout.REPLICATED",
    ),
)  # fmt: skip
_FOLLOWING = (
    Mutant(
        "a slave with another end is not cut", "engine.replication.follow",
        "return FollowStep.FOLLOW if log.end_position == answer.common else FollowStep.TRUNCATE",
        "return FollowStep.FOLLOW",
    ),
    Mutant(
        "logs are taken to be equal up to the shorter end", "engine.replication.follow",
        "    common = common_position(history, log.end_position, EpochHistory(asked.starts), asked.end)\n",
        "    common = min(log.end_position, asked.end)\n",
    ),
    Mutant(
        "the common position is in the oldest epoch", "engine.log.epochs",
        "    for number in reversed(range(len(own_starts))):\n        if own_starts[number] in places:\n",
        "    for number in range(len(own_starts)):\n        if own_starts[number] in places:\n",
    ),
    Mutant(
        "a slave tells as synced what it has written", "engine.replication.following",
        "StoredFrame(self._epoch, self._log.end_position, self._log.durable_position)",
        "StoredFrame(self._epoch, self._log.end_position, self._log.end_position)",
    ),
    Mutant(
        "a slave does not sync by itself", "engine.replication.following",
        "        self._unsynced_ms = now_ms\n        return True\n", "        return False\n",
    ),
    Mutant(
        "a slave tells only news", "engine.replication.following",
        "        if stored == self._reported and now_ms - self._reported_ms < REPORT_MS:\n",
        "        if stored == self._reported:\n",
    ),
    Mutant(
        "segments are not begun on the slave", "engine.replication.shipment",
        "        base, header = self._log.next_segment(position)\n", "        return None\n",
        (("        self._take(base + SEGMENT_HEADER_SIZE, now_ms)\n        return SegmentFrame(self.epoch, header)\n", ""),),
    ),
    Mutant(
        "a torn log leads", "engine.replication.broker",
        "        if leads and self.torn_at is not None:\n", "        if False:\n",
    ),
    Mutant(
        "a torn log counts up to its end", "engine.replication.broker",
        "history, end = self._sound(self.torn_at)", "history, end = self._sound(None)",
    ),
    Mutant(
        "a slave follows above its damage", "engine.replication.broker",
        "history, end = self._sound(self._damaged_at)", "history, end = self._sound(None)",
    ),
    Mutant(
        "a new master takes for lost whom it did not hear as a slave", "engine.replication.broker",
        "        known = self._absent_ms if record.epoch == before else {}\n", "        known = self._absent_ms\n",
        (("        awaited = record.awaited if leads else {}\n", "        awaited = record.awaited\n"),),
    ),
    Mutant(
        "a slave that leaves is never lost", "engine.replication.broker",
        "is_lost = now_ms - since_ms >= SILENT_MS", "is_lost = False",
        (("is_lost = each.is_silent(now_ms) or each.is_stalled(now_ms) or is_late", "is_lost = False"),),
    ),
)  # fmt: skip
_BROKER = (
    Mutant(
        "a replaced master keeps its log open", "engine.broker.core",
        "        elif life.lead_at is not None:\n", "        elif False:\n",
    ),
    Mutant(
        "a master follows with its log as it is though it has not handed over", "engine.broker.core",
        "        if not can_follow:\n", "        if False:\n",
    ),
    Mutant(
        "a master that hands over goes on appending", "engine.broker.hand_over",
        "        self._life.store.refusal.hand_over(SENTENCE)\n", "",
        (("        self._node.turn_away(SENTENCE)\n", ""),),
    ),
    Mutant(
        "a master has handed over before the others have everything", "engine.broker.hand_over",
        "        self._when_everywhere(self._drained)\n", "        self._drained()\n",
    ),
    Mutant(
        "a master that has handed over in vain never leads on", "engine.broker.hand_over",
        "        if self._present is not None and self._present.is_late:\n", "        if False:\n",
    ),
    Mutant(
        "a cut log continues the earlier processes", "engine.broker.incarnations",
        "        self._earlier = []\n        self.is_checked", "        self.is_checked",
    ),
    Mutant(
        "a log continues after a power cut", "engine.broker.incarnations",
        'has_all = bool(before.get("is_orderly") or before.get("boot") == boot) and not sync_failed', "has_all = True",
    ),
    Mutant(
        "a cut log is not cut", "engine.broker.core",
        "            order_truncation(self._host.env, self._host.directory, order)\n", "",
    ),
    Mutant(
        "a new process is not registered", "engine.broker.core",
        "        self.register()\n        self._host.role_is_due()\n", "        self._host.role_is_due()\n",
    ),
    Mutant(
        "a master does not ship what it wrote in its own turn", "engine.broker.broker_turn",
        "        self.ship()\n\n    def stored", "\n    def stored",
        (("        self.ship()\n\n    def follows", "\n    def follows"),),
    ),
)  # fmt: skip
_LOG = (
    Mutant(
        "apply forgets control records", "engine.log.write.apply",
        "            for address in control:\n", "            for address in []:\n",
    ),
    Mutant(
        "apply leaves the index", "engine.log.write.apply",
        "        self._batches.enter(appender.index, data, at, at + len(data), at)\n", "",
    ),
    Mutant(
        "apply forgets fired timers", "engine.log.write.apply",
        "            self.fired.append((self._segments.active.base, at, len(batch)))\n", "            pass\n",
    ),
    Mutant(
        "what is cut off stays in the file", "engine.log.upkeep.truncation",
        "            clear_end(self._env, segment)\n", "",
    ),
    Mutant(
        "later segments stay after a cut", "engine.log.upkeep.truncation",
        "        for base in reversed(later):\n", "        for base in []:\n",
    ),
    Mutant(
        "the view outlives a cut", "engine.log.upkeep.truncation",
        "        if is_ahead or indexed:\n", "        if False:\n",
    ),
    Mutant(
        "index files outlive a cut", "engine.log.upkeep.truncation",
        "            for path in side_files(", "            for path in [] and side_files(",
    ),
)  # fmt: skip
_RESEND = (
    Mutant(
        "a batch that is found is stored again", "engine.ops.resend",
        "            if records in found:\n", "            if False:\n",
    ),
    Mutant(
        "a search begins at the end of the log", "engine.ops.resend",
        "self._store.batch_search.find(wanted, position)",
        "self._store.batch_search.find(wanted, self._store.end_position)",
    ),
    Mutant(
        "a search leaves out the active segment", "engine.log.read.batch_search",
        "        return sorted(base for base in bases if base >= first)\n",
        "        return sorted(base for base in bases if first <= base < segments.active.base)\n",
    ),
    Mutant(
        "a lane sends again from the new master's position on", "engine.client.lane_core",
        "append.position = min(append.position, end_position)", "append.position = end_position",
    ),
    Mutant(
        "a lane sends again as if for the first time", "engine.client.lane_core",
        "append.encode_again(self._request_id, self.durability)", "append.encode(self._request_id, self.durability)",
    ),
    Mutant(
        "an append overtakes what is sent again", "engine.client.lane_core",
        "len(self._flying) >= self.in_flight_max or self._resending:", "len(self._flying) >= self.in_flight_max:",
        (("            self._send_again()\n", "            self._send_again()\n            return\n"),),
    ),
    Mutant(
        "a lane's earlier link stays", "engine.ops.lane_links",
        '            before.close("its lane has another link")\n', "            pass\n",
    ),
)  # fmt: skip
_CONTROLLER = (
    Mutant(
        "a new master has the old epoch", "controller.decision",
        "record, epoch=record.epoch + 1, state=state_of(in_sync)", "record, epoch=record.epoch, state=state_of(in_sync)",
    ),
    Mutant(
        "the log that reaches least far is chosen", "controller.decision",
        "    return max(sorted(reports.items()), key=lambda each: each[1].log)\n",
        "    return min(sorted(reports.items()), key=lambda each: each[1].log)\n",
    ),
    Mutant(
        "after a power cut the first one back leads", "controller.decision",
        "    if not complete and missing:\n", "    if False:\n",
    ),
    Mutant(
        "every log counts as complete", "controller.decision",
        "if record.in_sync.get(name) in report.continues and", "if name in record.in_sync and",
    ),
    Mutant(
        "earlier members are forgotten", "controller.decision",
        "        before={each: number for each, number in before.items() if each not in in_sync}, reason=reason,\n",
        "        before={}, reason=reason,\n",
    ),
    Mutant(
        "a slave is in sync before it has everything", "controller.decision",
        "follower.incarnation == incarnation and follower.has_all:", "follower.incarnation == incarnation:",
    ),
    Mutant(
        "a slave joins the set at once", "controller.decision",
        "        return replace(record, state=state, joining=joining, reason=f\"broker {near[0]} is near",
        "        return replace(record, state=GroupState.SYNC_REPLICATION, in_sync={**record.in_sync, **joining}, "
        "reason=f\"broker {near[0]} is near",
    ),
    Mutant(
        "reports about an earlier record count", "controller.decision",
        "    if master.version != version:  #", "    if False:  #",
    ),
    Mutant(
        "a restarted member is not lost", "controller.decision",
        "(follower.is_lost or follower.incarnation != incarnation)", "follower.is_lost",
    ),
    Mutant(
        "a restarted member is lost without a word of the master", "controller.decision",
        "    left = _without_lost(record, master)\n",
        "    ended = {name for name, each in record.awaited.items() if name in brokers and brokers[name].incarnation != each}\n"
        "    told = {name: each._replace(is_lost=name in ended or each.is_lost) for name, each in master.followers.items()}\n"
        "    left = _without_lost(record, replace(master, followers=told))\n",
    ),
    Mutant(
        "the record is written whatever its version is", "controller.group_turns",
        "self._coordination.write(self.group, record, step.version)",
        "self._coordination.write(self.group, record, (self._coordination.record(self.group) or step).version)",
    ),
)  # fmt: skip
_DELIVERY = (
    Mutant(
        "progress is not written",
        "engine.node",
        "            if self.delivery.has_progress and not",
        "            if False and not",
    ),
)
_SLAVE_READS = (
    Mutant(
        "a slave shows what is not confirmed", "engine.broker.slave_reads",
        "        if end <= self._readable_to:\n", "        if end:\n",
    ),
    Mutant(
        "borrowed bytes that do not verify count as damage", "engine.log.read.queue_reader",
        "            if file is not segment.file and how in (DAMAGED, UNREADABLE):\n", "            if False:\n",
    ),
)  # fmt: skip
_RECOVERY = (
    Mutant(
        "the missing end of a full segment is not noticed", "engine.log.segment.recovery_scan",
        "    if ends_at <= segment.end_at:\n        return []\n", "    return []\n",
    ),
    Mutant(
        "a roll does not tell where the full segment ends", "engine.log.write.roller",
        "            note_previous_end(self._env, following, appender.end_position - self._segments.active.base)\n",
        "            note_previous_end(self._env, following, 0)\n",
    ),
    Mutant(
        "a start after a power cut trusts all index files", "engine.log.upkeep.recovery",
        "if self._scans_all else set()", "if False else set()",
    ),
)  # fmt: skip
GROUP_MUTANTS = (
    *_RECOVERY, *_SLAVE_READS, *_CONFIRMATION, *_OUTPUT, *_FOLLOWING, *_BROKER, *_LOG, *_RESEND, *_CONTROLLER, *_DELIVERY,
)  # fmt: skip
