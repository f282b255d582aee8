"""Guards of `outbox`: letters, replay batches, topic replays, intake, notices, the API's keys, and the audit log."""

from __future__ import annotations

from tests.proof.guard import of

BATCHES = "tests/outbox/replay_batches"
BATCH_GUARDS = f"{BATCHES}/test_guards.py"
LETTERS = "tests/outbox/letters"
REPLAY = "tests/outbox/topic_replay/test_worker.py"
INTAKE = "tests/outbox/intake/test_handler.py"

GUARDS = [
    *of(
        "outbox/letters/transitions.py",
        f"{LETTERS}/test_transitions.py",
        ("a letter leaves only the state that was read", "guard=f\"old.status = '{old}'\",", ""),
        ("of letters of which one has moved none is moved", "if changed != len(rows):", "if False:"),
        (
            "what is closed is not closed again",
            "pk__in=list(ids), status=status)",
            "pk__in=list(ids))",
            f"{LETTERS}/test_every_kind.py::test_one_that_is_closed_is_neither_closed_again_nor_taken_back",
        ),
        (
            "a letter that its flow cannot give up stays open",
            'for pk, effect in effects.items() if effect.state != "refused"',
            "for pk, effect in effects.items()",
            f"{LETTERS}/test_every_kind.py",
        ),
    ),
    *of(
        "outbox/letters/redelivery.py",
        f"{LETTERS}/test_every_kind.py::test_one_that_is_closed_is_neither_closed_again_nor_taken_back",
        ("only an open letter is taken back", "(letter for letter in letters if letter.pk in mine)", "letters"),
        (
            "what was refused stays open",
            'for pk, effect in effects.items() if effect.state != "refused"}',
            "for pk, effect in effects.items()}",
            f"{LETTERS}/test_proof.py",
        ),
        (
            "nothing closes without proof",
            'if effect.state not in ("waiting", "refused")}',
            'if effect.state != "refused"}',
            f"{LETTERS}/test_proof.py",
        ),
        (
            "a letter of which parts are kept does not come back as a whole",
            "    if letter.is_excerpt:",
            "    if False:",
            f"{LETTERS}/test_excerpts.py {LETTERS}/test_letter_headers.py",
        ),
        (
            "a stopped partition is no record",
            "records = [letter for letter in letters if letter.step != STOPPED]",
            "records = letters",
            f"{LETTERS}/test_every_kind.py",
        ),
    ),
    *of(
        "outbox/letters/burial.py",
        f"{LETTERS}/test_proof.py tests/outbox/intake/test_handler.py {LETTERS}/test_refused_letters.py",
        ("a record has one letter a step and revision", "rows.items() if key in unknown]", "rows.items()]"),
        (
            "a letter that was known is a repeat",
            "return [letter for letter in letters if id(letter) not in written]",
            "return []",
            "tests/outbox/intake",
        ),
        (
            "a letter that the database refuses spares the others",
            "    if len(letters) > 1:\n",
            "    if False:\n",
            f"{LETTERS}/test_refused_letters.py",
        ),
    ),
    *of(
        "outbox/letters/edits.py",
        "tests/outbox/letters/edits/test_action.py tests/outbox/letters/edits/test_flows.py",
        ("of two editors one is faster", "if not mine or number != seen:", "if False:"),
        ("an edit that came between is seen", "if not mine or number != seen:", "if not mine:"),
        ("a copy that its gate refuses does not go", "    if not examined.may_go:", "    if False:"),
        ("what the flow refuses leaves no copy", '    if effect.state == "refused":', "    if False:"),
    ),
    *of(
        "outbox/letters/levers.py",
        f"{LETTERS}/test_levers.py",
        (
            "too many letters of a group are a batch",
            "        if len(chosen) > MOST:",
            "        if False:",
            "tests/outbox/admin/test_group_pages.py",
        ),
    ),
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
            "of a business key one is out at a time",
            "        if item.business_key and item.business_key in taken:\n            continue\n",
            "",
            f"{BATCHES}/test_run.py",
        ),
        (
            "of a key that is on its way nobody goes",
            "rows.exclude(business_key__in=taken)[:SCANNED]",
            "rows[:SCANNED]",
            f"{BATCHES}/test_run.py",
        ),
        (
            "no more than the window are out",
            "room = min(most, window - len(flying))",
            "room = most",
            f"{BATCHES}/test_run.py",
        ),
        (
            "the canary goes first",
            "    if batch.state == ReplayBatch.State.CANARY:",
            "    if False:",
            f"{BATCHES}/test_run.py",
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
            f"{BATCHES}/test_levers.py",
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
            "only a cancelled batch is put back",
            "held = ReplayBatch.objects.held(batch.pk, token, State.CANCELLED)",
            "held = ReplayBatch.objects.held(batch.pk, token, *BEGUN)",
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
            f"{BATCHES}/test_run.py",
        ),
        (
            "too many failures stop",
            "    if broken and batch.state in GOING:",
            "    if False:",
            f"{BATCHES}/test_run.py",
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
            f"{BATCHES}/test_skipped.py",
        ),
        (
            "the rest waits for the verdict on the canary",
            'if any(_waits(batch, item) for item in tried if item.state in ("eligible", "requeued")):',
            "if False:",
            f"{BATCHES}/test_run.py",
        ),
        (
            "a canary that failed during a pause stops",
            'if states & {"failed_again", "refused"}:',
            "if False:",
            f"{BATCHES}/test_levers.py {BATCHES}/test_run.py {BATCHES}/test_resend.py",
        ),
    ),
    *of(
        "outbox/replay_batches/lifecycle.py",
        f"{BATCHES}/test_levers.py::test_two_batches_of_one_source_do_not_both_start",
        (
            "of two batches that start at once the second sees the first",
            '.order_by("pk").select_for_update())\n    return blocker_of',
            '.order_by("pk"))\n    return blocker_of',
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
        ("an old preview is counted again", "        if is_fresh:", "        if True:", f"{BATCHES}/test_preview.py"),
        (
            "a stopped batch goes on beside no live one",
            "        if blocker:\n            raise",
            "        if False:\n            raise",
            f"{BATCHES}/test_skipped.py",
        ),
        (
            "who confirms many says how many",
            "if batch.eligible > TYPED_ABOVE and",
            "if False and",
            f"{BATCHES}/test_preview.py",
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
        ),
        (
            "a topic that was made anew is read by its worker first",
            'if any(mark.topic_id and frame.topic_id not in ("", mark.topic_id) for mark in marks.values()):',
            "if False:",
        ),
        ("who takes over reads the same", "if replay.bounds and not replay.dry_run:", "if False:"),
    ),
    *of(
        "outbox/intake/handler.py",
        INTAKE,
        (
            "a position that was read is not stored again",
            'if mark.topic_id == batch.topic_ids.get(record.topic, "") and record.offset < mark.next_offset:',
            "if False:",
        ),
        (
            "a position of another topic says nothing",
            'if mark.topic_id == batch.topic_ids.get(record.topic, "") and record.offset',
            "if record.offset",
        ),
        (
            "what a restored database reads again is marked",
            "if not batch.revision and self._is_forgotten(record, batch.topic_ids):",
            "if False:",
        ),
        (
            "what was forgotten is of one topic",
            'topic_ids.get(record.topic, "") == forgotten.topic_id and record.offset < forgotten.next_offset',
            "record.offset < forgotten.next_offset",
        ),
        (
            "a known key is no new message",
            "for key in ids if key in inserted]\n        OutboxMessage",
            "for key in ids]\n        OutboxMessage",
        ),
        ("another message for a known key is a letter", "elif why := difference(promise, stored):", 'elif why := "":'),
        ("a replay stores nothing that nobody can tell", "if id(record) in outside:", "if False:"),
        (
            "what came back too late is the next letter",
            "if again and promise.expires_at and promise.expires_at <= now:",
            "if False:",
            "tests/outbox/intake/test_promise_letters.py",
        ),
        (
            "a message stands behind that of a host whose clock is ahead",
            "if previous := newest.get(aggregate := firsts[key].aggregate):",
            "if previous := newest.get(aggregate := firsts[key].aggregate) and None:",
        ),
        ("no message outlives its kind", "return min(promise.expires_at, latest) if", "return promise.expires_at if"),
        (
            "a key that was deleted meanwhile is looked for again",
            "            if key not in originals:\n                raise Stale",
            "            if key not in originals:\n                continue\n                raise Stale",
        ),
    ),
    *of(
        "outbox/intake/envelope.py",
        "tests/outbox/intake/test_envelope.py",
        ("a producer uses its own channels", "    if channel not in grants[known]:", "    if False:"),
        ("who is not named promises nothing", "    if known not in grants:", "    if False:"),
        ("a channel that nobody handles is refused", "    if channel not in handlers():", "    if False:"),
    ),
    *of(
        "outbox/intake/promise_letters.py",
        "tests/outbox/intake/test_ways_back.py tests/outbox/intake/test_old_letters.py",
        (
            "a letter whose key may be gone sends nothing again",
            "            batch.prepared.leave_out([record for letter, record in back.pairs if letter.pk in forgotten])\n",
            "",
        ),
    ),
    *of(
        "outbox/messages/retention.py",
        "tests/outbox/messages/test_keys.py tests/outbox/delivery/test_old_keys.py tests/outbox/intake/test_old_letters.py",
        (
            "the key of what may still be sent is kept",
            "waiting = OutboxMessage.objects.among(messages.values()).unfinished()",
            "waiting = OutboxMessage.objects.none()",
        ),
        (
            "the key of a dead message is kept",
            '        to_come.update(rows.values_list("topic_id", flat=True))\n',
            "        pass\n",
        ),
        (
            "the key that a letter names is kept",
            'kept = _needed(keys) | named.intersection(keys.values_list("pk", flat=True))',
            "kept = _needed(keys)",
        ),
        (
            "the key of what a person sent again is kept",
            "to_come |= {str(pk) for pk in Resend.objects",
            "to_come &= {str(pk) for pk in Resend.objects",
            "tests/outbox/messages/test_keys.py tests/outbox/delivery/test_resend.py",
        ),
        (
            "what was sent again is known as long as its message",
            "filter(~there, created_at__lt=oldest)",
            "filter(created_at__lt=oldest)",
            "tests/outbox/delivery/test_resend.py",
        ),
        (
            "an archive has its name when it is complete",
            "        os.replace(part, target)\n",
            "",
            "tests/outbox/messages/test_archive.py",
        ),
        (
            "an archive is on the disk before its day is dropped",
            "        os.fsync(raw.fileno())",
            "        pass",
            "tests/outbox/messages/test_archive.py",
        ),
        (
            "nobody else reads an archive",
            "        os.fchmod(raw.fileno(), PRIVATE)\n",
            "",
            "tests/outbox/messages/test_archive.py",
        ),
    ),
    *of(
        "outbox/api/idempotency.py",
        "tests/notifications/api/test_idempotency.py",
        ("another body under a key is refused", "    if first.payload_hash != asked.payload_hash:", "    if False:"),
        (
            "a key in progress has no answer",
            "    if first.status_code is None:",
            "    if False:",
            "tests/throttler/api/test_transactional.py",
        ),
        ("a key is used once", "        if row_id is None:\n            return first_answer(asked)\n", ""),
        (
            "who takes over waits for a minute",
            "if row.created_at > now - TAKEN_OVER_AFTER or not",
            "if not",
            "tests/throttler/api/test_transactional.py",
        ),
        (
            "of two that take over one has it",
            "or not _in_progress(seen).update(token=token, created_at=now):",
            "or _in_progress(seen).update(token=token, created_at=now) < 0:",
            "tests/throttler/api/test_transactional.py",
        ),
        (
            "who was frozen behind its claim looks once more",
            "        if now <= claim.since + YOUNG:",
            "        if True:",
            "tests/throttler/api/test_transactional.py",
        ),
        (
            "who lost its claim does not settle",
            "status_code=None, token=claim.token, created_at=claim.since)",
            "status_code=None)",
            "tests/throttler/api/test_transactional.py",
        ),
        (
            "who lost its claim does nothing",
            "        if ours is None:\n            raise _elsewhere()",
            "        if ours is None:\n            ours = IdempotencyKey.objects.get(pk=claim.row_id)",
            "tests/throttler/api/test_transactional.py",
        ),
    ),
    *of(
        "outbox/audit_log/hash_chain.py",
        "tests/outbox/audit_log/test_seals.py",
        ("a seal is made of the one before", 'f"{before}:{number}:', 'f"{number}:'),
        (
            "the floor stays below a key that may come",
            "    while floor + 1 in sealed:\n        floor += 1",
            "    floor = max([floor, *sealed])",
        ),
        (
            "a second sealer has sealed nothing",
            "if not is_duplicate(error) and remedy_for(error) is not Remedy.RERUN:",
            "if True:",
        ),
    ),
    *of(
        "outbox/audit_log/reveal.py",
        "tests/outbox/audit_log/test_reveal.py",
        ("who lost the right sees dots", "    if not user.has_perm(RIGHT):\n", "    if False:\n"),
        (
            "a reveal is a person's own",
            "subject_id=str(subject_id), actor_number=user.pk, verb",
            "subject_id=str(subject_id), verb",
        ),
        ("a reveal ends", "if until > database_now() else", "if True else"),
        ("a reveal can be ended", "if last is None or last[0] == HIDE:", "if last is None:"),
        ("nothing is revealed by a link", 'if request.method != "POST" or not', "if not"),
        ("nothing is revealed without the right", "or not request.user.has_perm(RIGHT):", "or False:"),
        (
            "nothing is revealed without a reason",
            "elif problem := fault_of_reason(reason, LEAST_REASON):",
            'elif problem := "":',
        ),
        (
            "who may not look reveals nothing",
            "        if not self.has_view_permission(request, row):",
            "        if False:",
        ),
    ),
    *of(
        "outbox/accounts/links.py",
        "tests/outbox/accounts/test_frozen_links.py",
        (
            "a link that was replaced is not sent",
            "    if OperatorAction.objects.about(ACCOUNT, user.pk, most=1).filter(pk__gt=link.action).exists():",
            "    if False:",
        ),
    ),
    *of(
        "outbox/notices/sender.py",
        "tests/outbox/notices/test_leases.py tests/outbox/notices/test_sender.py",
        (
            "who lost its lease sends nothing",
            "if not Subscription.objects.held_by(claim.token).select_for_update().exists():",
            "if False:",
        ),
        ("what was decided meanwhile is not sent", "        if changed != len(claim.ids):", "        if False:"),
        (
            "a subscription is served by one",
            "if not leased and not Subscription.objects.held_by(token).exists():",
            "if False:",
        ),
        (
            "what another try has taken is not settled as sent",
            "if Notice.objects.held_by(claim.token).filter(pk=notice.pk).update(",
            "if Notice.objects.filter(pk=notice.pk).update(",
        ),
        (
            "what another try has taken is not settled as failed",
            "Q(state=State.SENDING, token=claim.token) | Q(state=notice.state), pk",
            "Q(state=State.SENDING) | Q(state=notice.state), pk",
        ),
        (
            "what may have arrived stays so",
            "State.UNSURE if outcome.unsure or notice.repeat else",
            "State.UNSURE if outcome.unsure else",
        ),
        (
            "an end that is none is not told",
            "if notice.phase in ENDS and notice.incident and not is_over(notice)]",
            "if False]",
        ),
        (
            "after a lost answer nothing is settled twice",
            "None if next(runs) and _is_settled(claim) else",
            "None if False else",
        ),
    ),
    *of(
        "outbox/notices/incidents.py",
        "tests/outbox/notices/test_incidents.py tests/outbox/notices/test_plan.py tests/outbox/notices/test_sender.py",
        (
            "an incident that has moved is not written",
            "filter(pk=row.pk, episode=row.episode, over_at=row.over_at)",
            "filter(pk=row.pk)",
        ),
        (
            "a phase is told once",
            "bulk_create(made, ignore_conflicts=True)\n    if made",
            "bulk_create(made)\n    if made",
        ),
    ),
    *of(
        "outbox/groups/counts.py",
        "tests/outbox/groups/test_arrivals.py",
        (
            "last seen never goes back",
            "CASE WHEN old.last_seen > new.last_seen THEN old.last_seen ELSE new.last_seen END",
            "new.last_seen",
        ),
        ("a source makes so many groups an hour", "if new and made[cause.source] >= MOST_NEW else", "if False else"),
        ("what its own replay brings back is no regression", " AND new.total_count > new.returned_count", ""),
    ),
    *of(
        "outbox/bookkeeping/counters.py",
        "tests/outbox/test_counter_races.py tests/outbox/bookkeeping",
        (
            "a zombie's total takes nothing back",
            '"CASE WHEN old.value > new.value THEN old.value ELSE new.value END"',
            '"new.value"',
        ),
        ("a drop is counted once", "    recorded.filter(scope=scope).delete()\n", ""),
    ),
    *of(
        "outbox/workers/listen.py",
        "tests/outbox/workers/test_listen.py",
        ("what a lost commit claimed is given back", "        self.unheard.give_back()\n", ""),
        (
            "what is not committed is not delivered",
            "transaction.on_commit(lambda: self._hear(thread, claimed))",
            "self._hear(thread, claimed)",
        ),
        ("what there is no room for is left", "        if not thread.room:\n            return\n", ""),
    ),
]
