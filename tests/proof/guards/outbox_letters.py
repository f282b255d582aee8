"""Guards of `outbox`: letters, intake, notices, the API's keys, and the audit log."""

from __future__ import annotations

from tests.proof.guard import of

LETTERS = "tests/outbox/letters"
INTAKE = "tests/outbox/intake/test_handler.py"

GUARDS = [
    *of(
        "outbox/letters/transitions.py",
        f"{LETTERS}/test_transitions.py",
        (
            "a letter leaves only the state that was read",
            "guard=f\"old.status = '{old}'\",",
            "",
            f"{LETTERS}/test_transitions.py::test_one_letter_in_another_state_takes_all_of_it_back",
        ),
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
        ),
    ),
    *of(
        "outbox/letters/redelivery.py",
        f"{LETTERS}/test_every_kind.py::test_one_that_is_closed_is_neither_closed_again_nor_taken_back",
        (
            "only an open letter is taken back",
            "(letter for letter in letters if letter.pk in mine)",
            "letters",
            f"{LETTERS}/test_every_kind.py::test_one_that_is_closed_is_neither_closed_again_nor_taken_back",
        ),
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
    ),
    *of(
        "outbox/letters/burial.py",
        f"{LETTERS}/test_proof.py tests/outbox/intake/test_handler.py {LETTERS}/test_refused_letters.py",
        ("a record has one letter a step and revision", "rows.items() if key in unknown]", "rows.items()]"),
    ),
    *of(
        "outbox/letters/edits.py",
        "tests/outbox/letters/edits/test_action.py tests/outbox/letters/edits/test_flows.py",
        ("of two editors one is faster", "if not mine or number != seen:", "if False:"),
        ("an edit that came between is seen", "if not mine or number != seen:", "if not mine:"),
        ("what the flow refuses leaves no copy", '    if effect.state == "refused":', "    if False:"),
    ),
    *of(
        "outbox/letters/levers.py",
        f"{LETTERS}/test_levers.py",
        (
            "too many letters of a group are a batch",
            "        if len(chosen) > MOST:",
            "        if False:",
            f"{LETTERS}/test_levers.py",
        ),
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
            f"{INTAKE}::test_what_a_restored_database_reads_again_may_have_been_sent",
        ),
        (
            "a known key is no new message",
            "for key in ids if key in inserted]\n        OutboxMessage",
            "for key in ids]\n        OutboxMessage",
        ),
        ("another message for a known key is a letter", "elif why := difference(promise, stored):", 'elif why := "":'),
        (
            "a replay stores nothing that nobody can tell",
            "if id(record) in outside:",
            "if False:",
            f"{INTAKE}::test_a_replay_stores_what_is_missing_and_nothing_that_nobody_can_tell",
        ),
        (
            "a message stands behind that of a host whose clock is ahead",
            "if previous := newest.get(aggregate := firsts[key].aggregate):",
            "if previous := newest.get(aggregate := firsts[key].aggregate) and None:",
            f"{INTAKE}::test_a_message_stands_behind_that_of_a_host_whose_clock_is_ahead",
        ),
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
    ),
    *of(
        "outbox/intake/promise_letters.py",
        "tests/outbox/intake/test_ways_back.py tests/outbox/intake/test_old_letters.py",
        (
            "a letter whose key may be gone sends nothing again",
            "            batch.prepared.leave_out([record for letter, record in back.pairs if letter.pk in forgotten])\n",
            "",
            "tests/outbox/intake/test_old_letters.py::test_a_letter_of_before_keys_were_kept_is_refused_with_the_reason",
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
            "Resend.objects.filter(pk__in=set(messages.values()))",
            "Resend.objects.none()",
        ),
        (
            "what was sent again is known as long as its message",
            "filter(~there, created_at__lt=oldest)",
            "filter(created_at__lt=oldest)",
            "tests/outbox/delivery/test_resend.py::test_old_ones_are_swept_and_counted",
        ),
        (
            "an archive is on the disk before its day is dropped",
            "        os.fsync(raw.fileno())",
            "        pass",
            "tests/outbox/messages/test_archive.py::test_all_of_a_file_is_on_the_disk_before_it_has_its_name",
        ),
    ),
    *of(
        "outbox/api/idempotency.py",
        "tests/notifications/api/test_idempotency.py",
        (
            "another body under a key is refused",
            "    if first.payload_hash != asked.payload_hash:",
            "    if False:",
            "tests/notifications/api/test_idempotency.py::test_another_body_under_the_key_is_refused",
        ),
        (
            "a key is used once",
            "        if row_id is None:\n            return first_answer(asked)\n",
            "",
            "tests/notifications/api/test_idempotency.py::test_the_same_request_gets_the_same_bytes_and_does_nothing",
        ),
        (
            "who takes over waits for a minute",
            "if row.created_at > now - TAKEN_OVER_AFTER or not",
            "if not",
            "tests/throttler/api/test_transactional.py::test_two_at_once_send_one_bunch",
        ),
        (
            "of two that take over one has it",
            "or not _in_progress(seen).update(token=token, created_at=now):",
            "or _in_progress(seen).update(token=token, created_at=now) < 0:",
            "tests/notifications/api/test_idempotency.py::test_of_two_that_take_over_a_key_at_once_one_has_it",
        ),
        (
            "who was frozen behind its claim looks once more",
            "        if now <= claim.since + YOUNG:",
            "        if True:",
            "tests/throttler/api/test_transactional.py::test_who_waits_longer_than_its_claim_holds_leaves_the_deed_to_who_took_over",
        ),
        (
            "who lost its claim does not settle",
            "status_code=None, token=claim.token, created_at=claim.since)",
            "status_code=None)",
            "tests/throttler/api/test_transactional.py::test_who_was_taken_over_writes_no_answer",
        ),
        (
            "who lost its claim does nothing",
            "        if ours is None:\n            raise _elsewhere()",
            "        if ours is None:\n            ours = IdempotencyKey.objects.get(pk=claim.row_id)",
            "tests/throttler/api/test_transactional.py::test_who_waits_longer_than_its_claim_holds_leaves_the_deed_to_who_took_over",
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
    ),
    *of(
        "outbox/audit_log/reveal.py",
        "tests/outbox/audit_log/test_reveal.py",
        (
            "who lost the right sees dots",
            "    if not user.has_perm(RIGHT):\n",
            "    if False:\n",
            "tests/outbox/audit_log/test_reveal.py::test_who_loses_the_right_sees_dots_at_once",
        ),
        (
            "a reveal is a person's own",
            "subject_id=str(subject_id), actor_number=user.pk, verb",
            "subject_id=str(subject_id), verb",
            "tests/outbox/audit_log/test_reveal.py::test_the_right_and_a_reason_reveal_one_row_to_one_person",
        ),
        ("a reveal ends", "if until > database_now() else", "if True else"),
        (
            "nothing is revealed without a reason",
            "elif problem := fault_of_reason(reason, LEAST_REASON):",
            'elif problem := "":',
            "tests/outbox/audit_log/test_reveal.py::test_without_a_reason_nothing_is_revealed",
        ),
    ),
    *of(
        "outbox/accounts/links.py",
        "tests/outbox/accounts/test_frozen_links.py",
        (
            "a link that was replaced is not sent",
            "    if OperatorAction.objects.about(ACCOUNT, user.pk, most=1).filter(pk__gt=link.action).exists():",
            "    if False:",
            "tests/outbox/accounts/test_frozen_links.py::test_a_link_of_an_account_that_was_changed_since_is_not_sent",
        ),
    ),
    *of(
        "outbox/notices/sender.py",
        "tests/outbox/notices/test_leases.py tests/outbox/notices/test_sender.py",
        (
            "who lost its lease sends nothing",
            "if not Subscription.objects.held_by(claim.token).select_for_update().exists():",
            "if False:",
            "tests/outbox/notices/test_leases.py::test_a_claim_that_was_lost_is_left_to_who_holds_it",
        ),
        (
            "what was decided meanwhile is not sent",
            "        if changed != len(claim.ids):",
            "        if False:",
            "tests/outbox/notices/test_sender.py::test_what_was_decided_meanwhile_is_not_sent",
        ),
        (
            "a subscription is served by one",
            "if not leased and not Subscription.objects.held_by(token).exists():",
            "if False:",
            "tests/outbox/notices/test_sender.py::test_one_that_died_before_it_sent_is_told_by_the_next_at_once_and_without_doubt",
        ),
        (
            "what another try has taken is not settled as sent",
            "if Notice.objects.held_by(claim.token).filter(pk=notice.pk).update(",
            "if Notice.objects.filter(pk=notice.pk).update(",
            "tests/outbox/notices/test_sender.py::test_what_another_try_has_taken_meanwhile_is_not_settled",
        ),
        (
            "what another try has taken is not settled as failed",
            "Q(state=State.SENDING, token=claim.token) | Q(state=notice.state), pk",
            "Q(state=State.SENDING) | Q(state=notice.state), pk",
            "tests/outbox/notices/test_sender.py::test_what_another_try_has_taken_meanwhile_is_not_settled",
        ),
        (
            "what may have arrived stays so",
            "State.UNSURE if outcome.unsure or notice.repeat else",
            "State.UNSURE if outcome.unsure else",
            "tests/outbox/notices/test_sender.py::test_what_may_have_arrived_stays_so_when_the_next_try_surely_failed",
        ),
    ),
    *of(
        "outbox/notices/incidents.py",
        "tests/outbox/notices/test_plan.py::test_a_look_that_was_frozen_changes_nothing_of_what_others_have_moved",
        (
            "an incident that came back meanwhile does not come back again",
            "filter(pk=row.pk, episode=row.episode, over_at=row.over_at)",
            "filter(pk=row.pk)",
        ),
        (
            "an incident that began anew meanwhile does not end",
            "filter(pk=row.pk, episode=row.episode, over_at=None)",
            "filter(pk=row.pk, over_at=None)",
        ),
    ),
    *of(
        "outbox/groups/counts.py",
        "tests/outbox/groups/test_arrivals.py",
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
    ),
]
