"""Guards of `outbox`: replay batches and topic replays."""

from __future__ import annotations

from tests.proof.guard import of

BATCHES = "tests/outbox/replay_batches"
BATCH_GUARDS = f"{BATCHES}/test_guards.py"
REPLAY = "tests/outbox/topic_replay/test_worker.py"

GUARDS = [
    *of(
        "outbox/replay_batches/models.py",
        BATCH_GUARDS,
        (
            "a batch is held by one worker",
            "self.filter(mine, pk=pk)",
            "self.filter(pk=pk)",
            f"{BATCHES}/test_levers.py",
        ),
        (
            "a batch is written by its holder alone",
            "self.held_by(token).filter(pk=pk, state__in=states)",
            "self.filter(pk=pk, state__in=states)",
        ),
        (
            "a batch is acted on in its states alone",
            "filter(pk=pk, state__in=states).select_for_update()",
            "filter(pk=pk).select_for_update()",
        ),
        (
            "a batch that has moved is not written",
            "filter(pk=self.pk, state=self.state, lease_token",
            "filter(pk=self.pk, lease_token",
        ),
        (
            "a batch that was taken over is not written",
            "state=self.state, lease_token=self.lease_token)",
            "state=self.state)",
        ),
    ),
    *of(
        "outbox/replay_batches/items.py",
        BATCH_GUARDS,
        (
            "an item that was left is not written",
            'constants="changed_at", guard="old.state <> \'left\'"',
            'constants="changed_at"',
        ),
        (
            "of items of which one is gone none is written",
            'if rows and ITEMS.run(rows, {"changed_at": now}) != len(rows):',
            'if rows and ITEMS.run(rows, {"changed_at": now}) < 0:',
        ),
        (
            "of a key that is on its way nobody goes",
            "rows.exclude(business_key__in=taken)[:SCANNED]",
            "rows[:SCANNED]",
            f"{BATCHES}/test_run.py::test_letters_whose_key_is_on_its_way_do_not_hide_those_behind_them",
        ),
        (
            "no more than the window are out",
            "room = min(most, window - len(flying))",
            "room = most",
            f"{BATCHES}/test_run.py::test_no_more_than_the_window_is_out_before_the_first_verdict",
        ),
        (
            "items of what is on its way are kept",
            "items_gone_at=None, requeued=0)",
            "items_gone_at=None)",
            f"{BATCHES}/test_retention.py",
        ),
    ),
    *of(
        "outbox/replay_batches/run.py",
        BATCH_GUARDS,
        (
            "a proof counts once",
            'filter(pk__in=[item.pk for item in items], state="requeued").oldest_first()',
            "filter(pk__in=[item.pk for item in items]).oldest_first()",
        ),
        (
            "proofs are counted by the holder",
            "        if batch is None:\n            return 0\n        still",
            "        if batch is None:\n            batch = ReplayBatch.objects.get(pk=batch_id)\n        still",
        ),
        (
            "a batch that was lost commits no chunk",
            "    if not batch.change(**changes):\n        raise Lost",
            "    batch.change(**changes)",
        ),
        (
            "nobody acts for a batch that is not held",
            "    if batch is None:\n        raise Lost\n    return batch",
            "    return batch or ReplayBatch.objects.get(pk=batch_id)",
            f"{BATCHES}/test_levers.py::test_a_chunk_whose_batch_is_not_ours_any_more_leaves_nothing",
        ),
        (
            "what was acted on is not acted on again",
            'filter(pk__in=[item.pk for item in items], state="eligible").oldest_first()',
            "filter(pk__in=[item.pk for item in items]).oldest_first()",
        ),
        (
            "what was judged is not put back",
            'ReplayItem.objects.filter(pk__in=[item.pk for item in items], state="eligible")\n        moved',
            "ReplayItem.objects.filter(pk__in=[item.pk for item in items])\n        moved",
        ),
        (
            "a batch turns from the state that was read",
            "held_by(self.token).filter(pk=batch.pk, state=batch.state)\n        if",
            "held_by(self.token).filter(pk=batch.pk)\n        if",
        ),
        (
            "one failure of the canary stops",
            "if batch.state == State.CANARY and not all(verdicts):",
            "if False:",
            f"{BATCHES}/test_run.py::test_one_failure_of_the_canary_stops",
        ),
        ("letters are judged again behind the lock", "        why |= judged.why\n", "", f"{BATCHES}/test_skipped.py"),
    ),
    *of(
        "outbox/replay_batches/lifecycle.py",
        BATCH_GUARDS,
        (
            "a hold that was begun anew is not ended",
            "if held is None or not held.hold_until or held.hold_until > now:",
            "if held is None:",
        ),
        (
            "one batch of a source at a time",
            "        if blocker:\n            held",
            "        if False:\n            held",
            f"{BATCHES}/test_skipped.py::test_a_batch_waits_while_another_live_one_has_letters_of_its_source",
        ),
    ),
    *of(
        "outbox/replay_batches/lifecycle.py",
        f"{BATCHES}/test_levers.py::test_two_batches_of_one_source_do_not_both_start",
        (
            "of two batches that start at once the second sees the first",
            '.order_by("pk").select_for_update())\n    return blocker_of',
            '.order_by("pk"))\n    return blocker_of',
            f"{BATCHES}/test_levers.py::test_two_batches_of_one_source_do_not_both_start",
        ),
        server=True,
    ),
    *of(
        "outbox/replay_batches/requests.py",
        f"{BATCHES}/test_levers.py",
        (
            "a lever moves a batch in its states alone",
            "pk=batch_id, state__in=states).select_for_update()",
            "pk=batch_id).select_for_update()",
        ),
        (
            "a stopped batch goes on beside no live one",
            "        if blocker:\n            raise",
            "        if False:\n            raise",
            f"{BATCHES}/test_skipped.py",
        ),
    ),
    *of(
        "outbox/replay_batches/preview.py",
        f"{BATCHES}/test_preview.py",
        ("a set is pinned once", "if batch is None or batch.pinned_at:", "if batch is None:"),
        ("what arrives later is not in the set", ".filter(pk__lte=batch.cut_off)", ""),
        (
            "what was read ahead is of this count",
            "return portion if begun == so_far else self._read(so_far)",
            "return portion",
            f"{BATCHES}/test_read_ahead.py",
        ),
    ),
    *of(
        "outbox/topic_replay/models.py",
        REPLAY,
        (
            "a replay is taken by one worker",
            "(rows.free(now) | rows.filter(lease_token__in=ours)).order_by",
            "rows.order_by",
        ),
        (
            "a replay that was taken over is not written",
            "state=TopicReplay.State.RUNNING, lease_token=token)",
            "state=TopicReplay.State.RUNNING)",
        ),
        (
            "a replay that was cancelled is not written",
            "filter(state=TopicReplay.State.RUNNING, lease_token=token)",
            "filter(lease_token=token)",
        ),
        (
            "a replay ends once",
            "return self.unfinished().update(**ended, **changes)",
            "return self.update(**ended, **changes)",
            f"{REPLAY}::test_a_worker_that_is_frozen_past_its_lease_neither_begins_nor_ends_the_replay_of_its_successor",
        ),
    ),
    *of(
        "outbox/topic_replay/run.py",
        REPLAY,
        (
            "a batch of a replay that was lost is rolled back",
            "            self.lost = True\n            transaction.set_rollback(True)",
            "            self.lost = True",
        ),
        (
            "a rehearsal changes nothing",
            "            transaction.set_rollback(True)\n            self._remember",
            "            self._remember",
            "tests/outbox/topic_replay/test_buffer_replay.py tests/outbox/topic_replay/test_ledger_replay.py",
        ),
        (
            "a topic that was made anew is not replayed as the old one",
            "if replay.topic_id and frame.topic_id and replay.topic_id != frame.topic_id:",
            "if False:",
            "tests/outbox/topic_replay/test_made_anew.py",
        ),
        (
            "a topic that was made anew is read by its worker first",
            'if any(mark.topic_id and frame.topic_id not in ("", mark.topic_id) for mark in marks.values()):',
            "if False:",
            "tests/outbox/topic_replay/test_made_anew.py::test_its_worker_reads_it_before_anybody_replays_it",
        ),
    ),
]
