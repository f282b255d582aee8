"""Guards of the throttler's worker: its rounds, what it restores, and what it tells the read model."""

from __future__ import annotations

from tests.proof.guard import of

ENGINE = "tests/throttler/engine"
LANES = "tests/throttler/lanes"
LIMITS = "tests/throttler/limits"
WORKER = "tests/throttler/worker"

GUARDS = [
    *of(
        "throttler/worker/owner.py",
        f"{WORKER}/test_owner.py",
        (
            "nothing of a transaction that did not commit counts",
            "if isinstance(verdict, Committed):\n            metrics",
            "if verdict:\n            metrics",
        ),
        (
            "a transaction of unknown outcome is settled before the next",
            "            self._rebuild()\n        self.dropped",
            "            pass\n        self.dropped",
        ),
        ("what is dropped is placed anew", "        self.dropped.put(numbers)\n", ""),
        ("lanes that were decided again keep how late they left", "self._late_us |= dict.fromkeys(", "dict.fromkeys("),
        ("what was decided of a partition that is given up is not sent", "        self._round.drop(gone)\n", ""),
        ("rows of a partition that is given up are forgotten", "        self.write_behind.drop(gone)\n", ""),
        (
            "a position of another topic passes nothing",
            "(part := self.parts.get(number)) and part.topic_id == mark.topic_id",
            "(part := self.parts.get(number))",
        ),
        (
            "a partition with too much in memory is read no more",
            "if part.waiting > (most // 2 if number in self.stalled else most)",
            "if False",
        ),
        (
            "the owner's time does not go back",
            "self._last = max(self._last, self._monotonic() // 1000 + self._offset)",
            "self._last = self._monotonic() // 1000 + self._offset",
            f"{WORKER}/test_clock.py",
        ),
        (
            "a step of the database's clock is taken in small parts",
            "max(-LARGEST_STEP, min(LARGEST_STEP, sure))",
            "sure",
            f"{WORKER}/test_clock.py",
        ),
        (
            "a slow answer of the database corrects nothing",
            "sure = max(0, off - doubt) + min(0, off + doubt)",
            "sure = off",
            f"{WORKER}/test_clock.py",
        ),
        (
            "who was fenced reports nothing",
            "return self.outdated and isinstance(",
            "return False and isinstance(",
            f"{WORKER}/test_rejoining.py {WORKER}/test_leaving.py {WORKER}/test_away.py",
        ),
    ),
    *of(
        "throttler/worker/round.py",
        f"{WORKER}/test_owner.py {WORKER}/test_eviction.py {WORKER}/test_late.py",
        ("what was read before is not taken up again", "if part and decoded.record.offset >= part.read:", "if part:"),
        (
            "a lane that has something to remember is kept",
            "lane is not None and _nothing_to_remember(lane, now)",
            "lane is not None",
        ),
        (
            "a lane of a partition that is given up is not forgotten in the changelog",
            "if self.parts.get(part.number) is part]",
            "]",
        ),
        (
            "what left late counts from when it left",
            "moved = self._moved(now) if late_us > LATE_US else []",
            "moved = []",
        ),
        (
            "nobody goes live before those whom the rate of all has cut short",
            "(not self.drain.schedule.due_weight and self.output.allowance(now) > 0)",
            "(self.output.allowance(now) > 0)",
        ),
        ("a drain keeps to the rate of all", "min(DRAINED, output.allowance(now)) if output else DRAINED", "DRAINED"),
        ("what a drain sends is spent of the rate of all", "output.spend(len(self.out.drained) - before)", "pass"),
        (
            "a record that the broker refused becomes a letter",
            "        if not reason:\n            return decoded\n",
            "        if reason or not reason:\n            return decoded\n",
        ),
        ("a clock that went forward by itself gives nothing back", "shift(lane.limiter, stepped_us, now)", "pass"),
    ),
    *of(
        "throttler/worker/consumer_backend.py",
        f"{WORKER}/test_placing.py {WORKER}/test_leaving.py {WORKER}/test_rejoining.py",
        ("nobody's rate is guessed", "        if not self.ready():\n            return {}\n", ""),
        ("what was restored for an earlier asking is not taken", "if number in self._asked}", "}"),
        (
            "a restore begins behind the last transaction",
            "self.given_up(new, self.restoring.ask)",
            "self.restoring.ask(new)",
            f"{WORKER}/test_placing.py {WORKER}/test_owner.py",
        ),
        (
            "what an accepted reset forgets counts as lost",
            "        if outcome.reset or outcome.uncounted:\n            part.write_off()\n",
            "",
        ),
        ("an accepted reset is accepted once", "            part.touched = True  # also", "            pass  # also"),
        (
            "who was fenced removes nobody from the group",
            "if self.instance and not self.owner.doubted:",
            "if self.instance:",
        ),
        (
            "more than room is not taken",
            "return self._records < FEW or self.sequence - self.done_sequence < AHEAD",
            "return True",
            f"{WORKER}/test_room.py",
        ),
        (
            "more partitions stop the throttler",
            "        raise ConsumerStopped(",
            "        return None\n        raise ConsumerStopped(",
            f"{WORKER}/test_placing.py {WORKER}/test_start.py {WORKER}/test_worker.py",
        ),
        (
            "offsets of partitions that are no longer ours are not committed",
            "mine = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in offsets]",
            "mine = [client.TopicPartition(*tp) for tp in offsets]",
            f"{WORKER}/test_plain_sender.py",
        ),
        (
            "without transactions nothing is committed that was not sent",
            "if self._refused or self._error:\n            return self._refused or Unknown(self._error)",
            "if False:\n            return self._refused or Unknown(self._error)",
            f"{WORKER}/test_plain_sender.py",
        ),
    ),
    *of(
        "throttler/worker/database_sync.py",
        f"{WORKER}/test_database_sync.py {WORKER}/test_sharing.py {LIMITS}/test_division.py",
        (
            "a division that another has changed is not replaced",
            "filter(pk=ONE_RECORD, version=proposed.version - 1)",
            "filter(pk=ONE_RECORD)",
        ),
        (
            "who has not heard of the group claims nothing",
            "return standing if standing.since and lately else None",
            "return standing if standing.since else None",
        ),
        (
            "an alarm of a partition that another has is not raised",
            "            if is_superseded(number, epoch, self.owner.snapshot.process, now):\n                return False\n",
            "",
        ),
        ("who was fenced writes no read model", "self.owner.failure or self.owner.doubted:", "self.owner.failure:"),
        (
            "what was not written is told again",
            "            self.owner.post(self.owner.not_written, left)\n            raise",
            "            raise",
        ),
        ("what was refused is told again", "        self.owner.post(self.owner.not_written, [partition])\n", ""),
        (
            "what was granted counts from the asking",
            "self.share.granted(part, asked)",
            "self.share.granted(part, self.clock.reading())",
        ),
        (
            "a grant that was not written is none",
            "            if self.write(proposed):\n",
            "            if self.write(proposed) or True:\n",
        ),
    ),
    *of(
        "throttler/worker/snapshot.py",
        f"{WORKER}/test_database_sync.py",
        ("after a failed report every lane is told", "pending.whole = True", "pass"),
        ("the first report names everything", "pending.complete |= lost.complete", "pass"),
    ),
    *of(
        "throttler/lanes/read_model.py",
        f"{LANES}/test_sweeping.py {LANES}/test_read_model.py {WORKER}/test_database_sync.py",
        (
            "an older owner writes nothing",
            "mine = Q(epoch__lt=partition.epoch) | Q(epoch=partition.epoch, process=partition.process)",
            "mine = Q()",
        ),
        (
            "a process that came back under its name is told apart",
            "Q(epoch=partition.epoch, process=partition.process)",
            "Q(epoch=partition.epoch)",
        ),
        (
            "only the first report takes a partition over in an epoch",
            "    if partition.complete:\n        # The",
            "    if True:\n        # The",
        ),
        (
            "who still has its name keeps its partitions",
            "Q(~Exists(named), epoch=partition.epoch)",
            "Q(epoch=partition.epoch)",
        ),
        (
            "a group that was forgotten is waited for",
            "Q(updated_at__lt=now - SILENT) | Q(updated_at__gt=now + SILENT)",
            "Q()",
        ),
        ("a row of the future keeps nobody out", " | Q(updated_at__gt=now + SILENT)", ""),
        (
            "who has lost its name reports nothing",
            "mine = Q(process=process) | Q(updated_at__lt=now - SILENT)",
            "mine = Q()",
        ),
        ("lanes that are told whole empty all others", "if partition.complete or partition.whole:", "if False:"),
        (
            "a lane that waits is not swept",
            "Lane.objects.filter(backlog=0, updated_at__lt=now - EMPTY_FOR)",
            "Lane.objects.filter(updated_at__lt=now - EMPTY_FOR)",
        ),
        ("an owner is kept until somebody reports its partitions", "if set(owner.partitions) <= reported]", "]"),
        (
            "an owner that reports meanwhile is not swept",
            "return silent.filter(pk__in=ids)",
            "return LaneOwner.objects.filter(pk__in=ids)",
        ),
        ("a silent owner supersedes nobody", "row.filter(newer, updated_at__gte=now - SILENT)", "row.filter(newer)"),
        ("who has our epoch without a name supersedes nobody", " & Exists(named))\n    return", ")\n    return"),
    ),
    *of(
        "throttler/lanes/restore.py",
        f"{LANES}/test_restore.py",
        (
            "a topic that was created again is not gone on with",
            "if _differ(record.topic_id, log.topic_id):\n        yield",
            "if False:\n        yield",
        ),
        (
            "offset and changelog have to agree",
            "if committed is not None and committed != record.position and not behind:",
            "if False:",
        ),
        (
            "with transactions an offset behind the changelog is an alarm",
            "behind = not transactions and committed",
            "behind = committed",
        ),
        ("what retention has taken is an alarm", "if position < log.begin:", "if False:"),
        (
            "a log that ends before what was read is an alarm",
            "if max(position, record.decided) > log.end:",
            "if False:",
        ),
        (
            "an offset without a changelog is an alarm",
            "if log.committed is not None:\n        yield",
            "if False:\n        yield",
        ),
        ("lanes without a position are an alarm", "elif changelog.lanes:", "elif False:"),
        ("a lane that cannot be read is an alarm", "    if changelog.bad:\n", "    if False:\n"),
        (
            "a lane of another topic is not taken up",
            "        if _differ(record.topic_id, topic_id):\n            changelog.stale",
            "        if False:\n            changelog.stale",
        ),
        ("an alarm stands until it is accepted", "if alarm and not accept_reset:", "if False:"),
        (
            "a reset forgets every lane of the changelog",
            "forgotten = frozenset(newest.keys() - {PARTITION_KEY})",
            "forgotten = frozenset()",
        ),
        ("a reset goes on within the log only", "and log.begin <= known <= log.end else", "else"),
    ),
    *of(
        "throttler/lanes/restore_thread.py",
        f"{LANES}/test_restore_thread.py {LANES}/test_restore_transactions.py",
        ("a result of an earlier asking is not handed over", "if self._asked.get(number) == asking:", "if True:"),
        (
            "what was finished before it was asked for again is dropped",
            "            self._drop_done(partitions)\n        self._wake.set()\n\n    def ready",
            "        self._wake.set()\n\n    def ready",
        ),
        (
            "after the broker was away a restore starts over",
            "            self.work[number] = Restore(restore.asking)\n        self.of.pause()",
            "            pass\n        self.of.pause()",
        ),
    ),
    *of(
        "throttler/lanes/state.py",
        f"{ENGINE}/test_decisions.py {ENGINE}/test_drain.py {ENGINE}/test_repairs.py",
        (
            "only what is in the backlog is stored again",
            "return self.backlog > 0 and self.drained < offset <= self.seen",
            "return self.backlog > 0",
        ),
        ("an empty lane waits for nothing", "return self.backlog > 0 and self.drained", "return self.drained"),
        (
            "a row does not stand under an earlier day than the one before",
            "self.newest = max(today, self.newest or today)",
            "self.newest = today",
        ),
    ),
]
