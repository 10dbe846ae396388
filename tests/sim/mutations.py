"""Seeded bugs: what `mutants.py` puts into the references, one at a time. Each text occurs once in its module."""

from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """One bug: `old` in the source of `module` becomes `new`, and the same for each pair of `more`."""

    name: str
    module: str
    old: str
    new: str
    more: tuple[tuple[str, str], ...] = ()

    def path(self, root: Path) -> Path:
        """The module's file."""
        return root / (self.module.replace(".", "/") + ".py")

    def applied(self, source: str) -> str:
        """The source with the bug."""
        for old, new in ((self.old, self.new), *self.more):
            assert source.count(old) == 1, f"{self.name}: a text of it occurs {source.count(old)} times"
            source = source.replace(old, new)
        return source


_LOG = (
    Mutant(
        "error in an append leaves batches staged",
        "engine.log.write.append",
        "        self._roll_back()\n        if isinstance(error, (DiskFullError",
        "        if isinstance(error, (DiskFullError",
        (
            (
                "                return self.refuse_unknown(topic_id, error)\n        return CODE_OK\n",
                "                raise\n        return CODE_OK\n",
            ),
        ),
    ),
    Mutant(
        "first wait forgets segments left before it", "engine.log.write.syncer",
        "        for file in self._unsynced():\n            self._leave_behind(worker, file)\n", "",
    ),
    Mutant(
        "a rolled segment is not left to the syncer", "engine.log.write.syncer",
        "            self._leave_behind(self._worker, self._file)\n", "            pass\n",
    ),
    Mutant(
        "a sync covers what was requested later", "engine.log.write.syncer",
        "        self.advance(done)\n", "        self.advance(max(done, self._waiting[-1][0] if self._waiting else 0))\n",
    ),
    Mutant(
        "a failed sync is taken for a good one",
        "engine.log.write.syncer",
        "        if error:\n            die_of_sync",
        "        if error > 1 << 20:\n            die_of_sync",
    ),
    Mutant(
        "bytes of a failed sync are not written again",
        "engine.log.upkeep.recovery",
        "        if self._is_unsynced:\n            write_again(self._env, segment)\n",
        "",
    ),
    Mutant(
        "sealing that has failed does not go on",
        "engine.log.write.sealer",
        "                self.error, self._stopped = str(error), True\n",
        "",
    ),
    Mutant(
        "no sync for durable appends", "engine.ops.append",
        "if not self._stored.waits(durability) and not peer.peer_state.unsynced:", "if durability >= layout.MEMORY:",
    ),
    Mutant(
        "a checkpoint without a sync", "engine.log.write.checkpoint",
        "            sync_or_die(self._env, active.file)\n", "            pass\n",
    ),
    Mutant(
        "the name of a new segment is not synced", "engine.log.segment.segment",
        "        env.sync_directory(directory)\n", "        pass\n",
    ),
    Mutant(
        "a last segment that cannot be read is empty", "engine.log.segment.recovery_scan",
        "        _check_end(segment, scan, scan.unreadable)\n", "",
    ),
    Mutant(
        "recovery forgets the next topic id", "engine.log.upkeep.recovery",
        "self._state.next_topic_id = max(self._state.next_topic_id, topic.id + 1)", "pass",
    ),
    Mutant(
        "bytes that do not verify are taken for a batch", "engine.log.segment.batch_reader",
        "        return size if self._verifies(memoryview(buffer)[at : at + size], position) else 0\n",
        "        return size\n",
    ),
    Mutant(
        "recovery drops progress", "engine.log.write.replay",
        '            view.put(b"p" + key, value or None)', "            pass",
    ),
    Mutant(
        "a refused write leaves its index entries", "engine.log.write.append",
        "            self.index.take_back(*self._undo.pop())\n", "            self._undo.pop()\n",
    ),
    Mutant(
        "a refused write leaves its ids", "engine.log.write.append", "        self.ids.take_back()\n", "",
    ),
    Mutant(
        "a partly written request is called refused", "engine.log.write.append",
        "                kind = PartlyWrittenError if self._part_written else DiskFullError\n",
        "                kind = DiskFullError\n",
    ),
    Mutant(
        "short writes are taken for whole", "engine.log.write.append",
        "            view = view[taken:]\n", "            view = view[len(view) :]\n",
    ),
    Mutant(
        "an index file of what could be read", "engine.log.write.sealer",
        "        if not scan.is_unread and not segment.is_header_unread:\n", "        if True:\n",
        (("        if scan.is_unread and not accept_unread:\n", "        if False:\n"),),
    ),
    Mutant(
        "a raised end ends with its segment", "engine.log.view",
        "            if before is not None and before[2] > next_offset:\n", "            if before is not None and False:\n",
    ),
    Mutant(
        "a look-up by time finds the next batch", "engine.log.segment.index",
        "        return run[found][0] if found < count else None\n",
        "        return run[found + 1][0] if found + 1 < count else None\n",
    ),
    Mutant(
        "offsets begin again in each segment", "engine.log.write.next_offsets",
        "return 0 if topic_id >= self._fresh_from[-1] else self._view.stored_end(topic_id, queue)", "return 0",
    ),
    Mutant(
        "the id window is empty after a start", "engine.log.upkeep.recovery",
        "        found.ids.load(found.active_ids, now_ms)\n", "",
    ),
    Mutant(
        "a checkpoint before the topics that it covers", "engine.log.write.sealer",
        "    for changes in _chunks(frozen):\n",
        "    view.store.write([(CHECKPOINT_KEY, checkpoint.pack())])\n    view.store.flush()\n"
        "    for changes in _chunks(frozen):\n",
    ),
)  # fmt: skip

_DELIVERY = (
    Mutant(
        "leases end at half of their time", "engine.delivery.dispatch",
        "        due_ms = now_ms + pull.invisible_ms\n", "        due_ms = now_ms + pull.invisible_ms // 2\n",
    ),
    Mutant(
        "progress without what is in flight",
        "engine.delivery.in_flight",
        "[each.stored(now_ms, young_ms) for each in self.ranges], time_ms",
        "[], time_ms",
    ),
    Mutant(
        "every redelivery counts twice", "engine.delivery.in_flight",
        "attempt = self.ranges[at].attempt + 1\n", "attempt = self.ranges[at].attempt + 2\n",
    ),
    Mutant(
        "failed messages are pulled in full numbers", "engine.delivery.queue_cursor",
        "        if attempt <= 1:\n            return wanted\n", "        if attempt <= 100:\n            return wanted\n",
    ),
    Mutant(
        "messages of a key do not wait", "engine.delivery.key_order",
        "        if self._heads.setdefault(number, offset) == offset:\n",
        "        if self._heads.setdefault(number, offset) is not None:\n",
    ),
    Mutant(
        "filters of a definition are not used", "engine.delivery.group",
        "        if now.filters is not None and now.filters != self.filters:\n",
        "        if now.filters is None:\n",
    ),
    Mutant(
        "a group that was paused meanwhile is served", "engine.delivery.delivery",
        "        if generation == self._followed:\n            return\n", "        if generation >= 0:\n            return\n",
    ),
    Mutant(
        "a release counts the attempt", "engine.delivery.in_flight",
        "                range_.attempt, range_.ready = range_.attempt - 1, True\n",
        "                range_.attempt, range_.ready = range_.attempt + 1, True\n",
    ),
    Mutant(
        "a filter passes everything", "engine.delivery.filters",
        '    return None if not text or is_dead_letter_topic(topic) else compiled(text)\n', "    return None\n",
    ),
    Mutant(
        "rejected messages are forgotten", "engine.delivery.acknowledge",
        "        if claimed:\n            cause", "        if not claimed:\n            cause",
    ),
    Mutant(
        "an empty queue is not watched", "engine.delivery.dispatch",
        "        if cursor.next_offset >= cursor.end_seen:\n            self._store.watch(cursor.topic_id, cursor.queue)\n",
        "        if cursor.next_offset >= cursor.end_seen:\n            pass\n",
    ),
    Mutant(
        "expired leases wake no queue", "engine.delivery.delivery",
        "            self._dead_lettering.claim_spent(cursor)\n            self._wake_list.wake(cursor)\n",
        "            self._dead_lettering.claim_spent(cursor)\n",
    ),
    Mutant(
        "an extension ends the lease", "engine.delivery.acknowledge",
        "        return ack.delay_ms if ack.delay_ms >= 0 else cursor.group.policy.invisible_ms\n", "        return 0\n",
    ),
    Mutant(
        "pulls of closed links stay", "engine.ops.waiting",
        "        for withdraw, _ in waiting.values():\n            withdraw()\n", "",
    ),
    Mutant(
        "acknowledged messages stay open", "engine.delivery.in_flight",
        "                at = self._split(at, max(first, range_.first), min(end, range_.end))\n                self._delete(at, at + 1)\n",
        "                at += 1\n",
    ),
    Mutant(
        "dead letters are not written", "engine.delivery.dead_lettering",
        "        ((code, _),) = self._store.append(batch, 1, self._lease_clock.wall_ms())\n", "        code = 0\n",
    ),
    Mutant(
        "an unreadable record drops what was leased",
        "engine.delivery.dispatch",
        "        except (OSError, UnreadableError):\n            self._store.watch(cursor.topic_id, cursor.queue)\n"
        "            return False\n",
        "        except (OSError, UnreadableError):\n            raise\n",
    ),
    Mutant(
        "leases begin below the floor of a reset",
        "engine.delivery.leases",
        "        self._start_ms, self.first = _start(stored, wall_ms(), since_ms)\n",
        '        self._start_ms, self.first = _start(b"", wall_ms(), since_ms)\n',
        (("        if number > self.last:\n", "        if number < 0:\n"),),
    ),
    Mutant(
        "a definition that cannot be read is none",
        "engine.server.policy.group_policies",
        "            return UNREADABLE if view.is_unreadable(\"group\", group) else DEFAULT\n",
        "            return DEFAULT\n",
    ),
    Mutant(
        "leases end with the process",
        "engine.delivery.in_flight",
        "due_ms, not stored.due)",
        "due_ms, True)",
    ),
    Mutant(
        "a paused group is served", "engine.delivery.delivery",
        "may_fill = subscription.ring and not subscription.parked and not group.policy.paused",
        "may_fill = subscription.ring and not subscription.parked",
    ),
)  # fmt: skip

_TIMERS = (
    Mutant(
        "an id is shown before its topic is durable", "engine.ops.topic",
        "        self._store.when_durable(self._store.topics_position, answer)\n", "        answer()\n",
    ),
    Mutant(
        "a topic made by a pull is not waited for", "engine.log.write.catalogue",
        "        self.topics_position = self._appender.end_position\n", "        pass\n",
    ),
    Mutant(
        "segments replayed by index hide fired timers", "engine.log.upkeep.recovery",
        "            if base in self._scanned or end <= fired_from:\n",
        "            if base in self._scanned or end <= fired_from or (checkpoint and base >= checkpoint.segment_base):\n",
    ),
    Mutant(
        "timers vanish with an error at their firing", "engine.timers.firing",
        "        except BaseException:\n            self._give_back(entries)\n            raise\n",
        "        except BaseException:\n            raise\n",
    ),
    Mutant(
        "a part of an add is stored and refused", "engine.timers.timer_store",
        "                if not addresses:\n                    raise\n", "                raise\n",
    ),
    Mutant(
        "timers fire early", "engine.timers.firing",
        "self._store.table.pop_due(now_ms, self._limit)", "self._store.table.pop_due(now_ms + 300, self._limit)",
    ),
    Mutant(
        "cancelled timers stay in the log", "engine.timers.timers",
        "        self._tombstones.end_now([address, *self._rounds_before(timer)])\n", "",
    ),
    Mutant(
        "cancelled timers stay in the table", "engine.timers.timers",
        "        self.table.remove(*address, hash_id(topic_id, shown_id))\n", "",
    ),
    Mutant(
        "recovery does not look for fired timers", "engine.timers.recovery",
        "    for base, at, size in store.log.fired:\n", "    for base, at, size in ():\n",
    ),
    Mutant(
        "a forgotten request is over by the wall clock alone", "engine.replies.requests",
        "        return self._calls.age_ms(record, self._monotonic_ms(), at) >= _longest_ms(wait_ms)\n",
        "        return False\n",
    ),
    Mutant(
        "the outcome does not withdraw the request", "engine.replies.requests",
        "        has_ended = self._end(token)\n", "        has_ended = True\n",
    ),
    Mutant(
        "a reply goes to another asker", "engine.replies.exchange",
        "        target = self._by_instance.get(instance)\n        if target is None or len",
        "        target = next(iter(self._by_instance.values()), None)\n        if target is None or len",
    ),
    Mutant(
        "repliers are not answered", "engine.replies.exchange",
        "        found.replier.send_frame(layout.REPLY, found.request_id, code, sentence)\n", "",
    ),
)  # fmt: skip

_RETENTION = (
    Mutant(
        "messages grow old by the wall clock", "common.believed_time",
        "        elif ahead_ms <= self._drift_ms:\n            self._drift_ms -= ahead_ms\n",
        "        elif ahead_ms:\n",
    ),
    Mutant(
        "a deleted segment takes delayed messages with it", "engine.log.upkeep.retention",
        "            yield from self._timers.relocate(segment.base)\n", "            yield\n",
    ),
    Mutant(
        "a deleted segment takes topics with it", "engine.log.upkeep.relocation",
        "        return self._view.topic_by_id(topic.id) == topic\n", "        return False\n",
    ),
    Mutant(
        "a deleted segment takes counters with it", "engine.log.upkeep.relocation",
        "        return self._view.topic_by_id(topic_id) is not None and self._end_of(topic_id, queue) == next_offset\n",
        "        return False\n",
    ),
    Mutant(
        "a segment is deleted before its relocated records are synced", "engine.log.upkeep.retention",
        "        self._waits = True\n", "        self._waits = False\n",
    ),
    Mutant(
        "a lost definition leaves the default retention", "engine.log.read.retentions",
        "            return kept if kept is not None and kept.is_own else None\n", "            return NONE\n",
    ),
    Mutant(
        "retentions are not kept in the log", "engine.log.read.retentions",
        '        if (self._view.get(b"p" + key) or b"") != value:\n', "        if not key:\n",
        (("            return kept if kept is not None and kept.is_own else None\n",
          "            return kept if kept is not None and kept.is_own else NONE\n"),),
    ),
    Mutant(
        "a segment goes by the shortest retention in it", "engine.log.upkeep.expiry",
        "                        longest_ms = max(longest_ms, own.age_ms or self._default_ms)\n",
        "                        longest_ms = min(longest_ms or NEVER_MS, own.age_ms or self._default_ms)\n",
    ),
    Mutant(
        "a segment's age counts from its first message", "engine.log.upkeep.expiry",
        "    return max(created_ms, head[11]) if head[0] == index.last_crc else None\n",
        "    return segment.header.created_ms\n",
    ),
    Mutant(
        "each queue has a part of its share of a topic's size", "engine.log.read.start_offsets",
        "share = own.size_bytes // topic.queues if", "share = own.size_bytes // topic.queues // 8 if",
    ),
    Mutant(
        "a group stops before what is gone", "engine.delivery.dispatch",
        "            cursor.see(out.first_offset, out.end_offset)\n            return None if", "            return [] if",
    ),
)  # fmt: skip

_GROWTH = (
    Mutant(
        "keys do not wait for their old queues", "engine.delivery.key_moves",
        "        if self._are_free(needs, key_number):\n            return False\n",
        "        if needs is not None:\n            return False\n",
    ),
    Mutant(
        "a growth is not recorded", "engine.log.growth",
        "            self._put_progress([(_key(old), _encode(growth))])\n            growths[old.id] = [*earlier, growth]\n",
        "            pass\n",
    ),
    Mutant(
        "messages of late senders are not waited for", "engine.delivery.key_moves", "WINDOW_MS = 3_000\n", "WINDOW_MS = 0\n",
    ),
    Mutant(
        "an old queue is free once its messages are leased", "engine.delivery.key_moves",
        "        return not 0 <= first < end or waits_for(cursor.queue, first)\n", "        return True\n",
    ),
)  # fmt: skip

_COPIED = (
    Mutant(
        "a copier that does not know the next offset is served", "engine.log.write.copied",
        "state.next == part.next <= first", "state.next <= first",
    ),
    Mutant(
        "a record that was copied is taken again", "engine.log.write.copied",
        "state.next == part.next <= first", "part.next <= first",
    ),
    Mutant(
        "a source is replaced by one that was accepted for another", "engine.log.write.copied",
        "        if state.number != replaces:\n", "        if state.number < replaces:\n",
    ),
    Mutant(
        "a start does not look at copied batches", "engine.log.upkeep.copied_search",
        "            take_copied(view, batch)\n        else:\n", "            pass\n        else:\n",
    ),
    Mutant(
        "a start by index files does not look for copied batches", "engine.log.upkeep.copied_search",
        "        if not wanted:\n            break\n", "        if True:\n            break\n",
    ),
    Mutant(
        "copied batches after damage count", "engine.log.upkeep.copied_search",
        "for each in state.damage if each.position >= state.synced)", "for each in state.damage if False)",
    ),
    Mutant(
        "the next start believes what follows damage", "engine.ops.copied",
        "        renumber_doubtful(store, clock.wall_ms())\n", "        store.doubtful.clear()\n",
    ),
    Mutant(
        "the view does not learn of a copied batch", "engine.log.write.copied",
        '        self._view.put(b"p" + key, state.encode())\n', "        pass\n",
    ),
    Mutant(
        "a copier that was overtaken passes over what another one copied", "engine.log.write.copied",
        "        if next_offset is not None and state.next != next_offset:\n", "        if False:\n",
    ),
    Mutant(
        "what is passed over is accepted before the last copied records are synced", "engine.ops.copied",
        "        if next_offset is None:\n", "        if True:\n",
    ),
)  # fmt: skip

MUTANTS = (*_LOG, *_DELIVERY, *_TIMERS, *_RETENTION, *_GROWTH, *_COPIED)
