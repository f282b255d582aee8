"""Guards of `outbox`: messages, their delivery, and what the work is booked with."""

from __future__ import annotations

from tests.proof.guard import of

RACES = "tests/outbox/delivery/test_races.py"
RESCUE = "tests/outbox/delivery/test_rescue.py"
STALLS = "tests/outbox/delivery/test_stalls.py"
STALE = "tests/outbox/delivery/test_stale_reads.py"

GUARDS = [
    *of(
        "outbox/messages/publish.py",
        "tests/outbox/messages/test_publish.py",
        ("a message outlives no change that failed", "if not connection.in_atomic_block:", "if False:"),
        (
            "a key stands for one message",
            "or first.payload_hash != payload_hash or first.message_id is None",
            "or first.message_id is None",
        ),
        (
            "ids of an aggregate rise whatever a host's clock says",
            "uuid7_after(after or _newest_of(aggregate))",
            "uuid7_after(after)",
        ),
        (
            "a message that was never tried is not confirmed",
            "state__in=PROVABLE, attempts__gt=0",
            "state__in=PROVABLE",
            RESCUE,
        ),
        (
            "what was decided since the look is not confirmed",
            "if provable.filter(pk=message.id).update(",
            "if OutboxMessage.objects.filter(pk=message.id).update(",
            STALE,
        ),
        (
            "what has ended is not confirmed",
            "filter(state__in=PROVABLE, attempts__gt=0)",
            "filter(attempts__gt=0)",
            RESCUE,
        ),
    ),
    *of(
        "outbox/bookkeeping/watermarks.py",
        "tests/outbox/bookkeeping/test_watermarks.py",
        ("a zombie moves no mark back", "old.next_offset > new.next_offset", "old.next_offset < 0"),
        (
            "a zombie moves no mark into a topic that is no more",
            "old.topic_id NOT IN ('', new.topic_id)",
            "old.topic_id = 'x'",
        ),
        ("a report leaves no gap in what was read", "& Q(next_offset__gte=to.since)", ""),
    ),
    *of(
        "outbox/bookkeeping/leases.py",
        "tests/outbox/bookkeeping/test_leases.py",
        ("what is leased is not leased again", "self.free(now, token).filter(pk__in=ids)", "self.filter(pk__in=ids)"),
        (
            "a lease that runs is not recovered",
            "lease_token__isnull=False, lease_until__lte=now",
            "lease_token__isnull=False",
            "tests/outbox/bookkeeping/test_leases.py::test_recovery_gives_back_what_a_dead_worker_held_and_no_lease_that_runs",
        ),
        ("what may have had an effect is decided about", "if not model.releasable:", "if False:", RESCUE),
        ("a job runs once at a time", "free = Q(until__lte=now) | Q(token=token)", "free = Q()"),
        ("an answer that is lost keeps no job away", "Q(until__lte=now) | Q(token=token)", "Q(until__lte=now)"),
        (
            "nobody gives back the lease of another",
            "filter(job=job, token=token).update(token=None",
            "filter(job=job).update(token=None",
        ),
    ),
    *of(
        "outbox/delivery/claim.py",
        "tests/outbox/delivery/test_claim_locks.py",
        (
            "what was leased meanwhile is not leased again",
            'constants="state lease_token lease_until",\n    guard="old.state = \'pending\'",',
            'constants="state lease_token lease_until",',
        ),
        ("a claim of fewer than were locked is taken back", "if taken != len(rows):", "if False:"),
        (
            "a claim whose answer was lost is given back",
            "unheard.claims.append(claim)",
            "pass",
            f"{STALLS}::test_a_session_that_ends_at_the_claims_commit_strands_nothing",
        ),
        (
            "only what the lost claim holds is given back",
            'rows.held_by(claimed.token).filter(state="processing")',
            'rows.filter(state="processing")',
            f"{STALLS}::test_what_a_claim_without_an_answer_does_not_hold_is_not_given_back",
        ),
        (
            "what was settled meanwhile is not given back",
            'ours = rows.held_by(claimed.token).filter(state="processing")',
            "ours = rows.held_by(claimed.token)",
            f"{STALLS}::test_what_a_claim_without_an_answer_does_not_hold_is_not_given_back",
        ),
        (
            "what nobody wants any more is not sent",
            "    if late:",
            "    if False:",
            "tests/outbox/delivery/test_deliver.py::test_what_nobody_wants_any_more_is_a_letter_and_is_not_sent",
        ),
        (
            "messages behind an unfinished one wait",
            "if unfinished == sum(not message.times_revived for message in candidates):",
            "if True:",
            "tests/outbox/delivery/test_ordering.py",
        ),
    ),
    *of(
        "outbox/delivery/candidates.py",
        "tests/outbox/delivery/test_claim_locks.py",
        (
            "due messages are locked by one claim",
            "return rows.locked()[:size]",
            "return rows[:size]",
            "tests/outbox/delivery/test_claim_locks.py::test_of_two_that_look_at_once_none_sees_what_the_other_has",
        ),
        (
            "messages of hints are locked by one claim",
            "read_messages(rows.locked()[:size])",
            "read_messages(rows[:size])",
            "tests/outbox/delivery/test_claim_locks.py::test_expiring_what_is_late_leaves_the_rest_to_claims",
        ),
        server=True,
    ),
    *of(
        "outbox/delivery/deliver.py",
        STALLS,
        (
            "no call is begun that may outlast the lease",
            "if not self.halt and self.claim.lease_left < send_budget(self.handler):",
            "if False:",
        ),
        ("the lease is looked at behind the attempts once more", "if not chunk or self._must_stop():", "if not chunk:"),
        ("what another worker holds is not sent", "if len(opened) < len(chunk):", "if False:"),
        (
            "behind one that another worker holds nobody goes",
            "self.tried.append(message)\n                self.blocked[message.aggregate] = message.available_at",
            "self.tried.append(message)",
            f"{STALLS}::test_the_lost_are_left_out_and_hold_up_their_aggregate_alone",
        ),
        (
            "behind one that another worker settled nobody goes",
            "            elif after is None:\n",
            "            elif False:\n",
            "tests/outbox/delivery/test_ordering.py",
        ),
        (
            "behind one that was not sent nobody goes",
            "elif after is not None and not after.ends and not message.times_revived:",
            "elif False:",
            "tests/outbox/delivery/test_ordering.py",
        ),
        (
            "what was not tried is given back",
            "if len(self.tried) < len(self.claim.messages):",
            "if False:",
            "tests/outbox/delivery/test_deliver.py::test_throttled_channels_wait_as_told",
        ),
    ),
    *of(
        "outbox/delivery/settle.py",
        RESCUE,
        (
            "what is not in processing is not settled",
            "HELD = \"old.state = 'processing'\"",
            'HELD = ""',
            f"{RESCUE}::test_proof_in_the_middle_of_a_call_is_not_a_lost_fence",
        ),
        (
            "a zombie sends nothing for its successor",
            'constants="state sent_at lease_until error_class error",\n    fixed="lease_token",',
            'constants="state sent_at lease_until error_class error lease_token",',
            f"{RESCUE}::test_a_zombie_does_not_settle_for_its_successor",
        ),
        (
            "a zombie fails nothing for its successor",
            'constants="lease_until", fixed="lease_token", guard',
            'constants="lease_until lease_token", guard',
            f"{RESCUE}::test_a_zombie_does_not_settle_for_its_successor",
        ),
        (
            "a zombie gives back nothing of its successor",
            'constants="state lease_until",\n    fixed="lease_token",',
            'constants="state lease_until lease_token",',
        ),
        (
            "fewer rows than were held are a lost fence",
            "if changed != len(results):",
            "if False:",
            f"{RACES}::test_a_zombie_changes_nothing_and_is_counted",
        ),
        (
            "what another holds is not settled by who lost it",
            "among(ids).held_by(claim.token).select_for_update()",
            "among(ids).select_for_update()",
            STALLS,
        ),
        (
            "what was confirmed meanwhile is not settled again",
            'if rows.get(message.id) == "processing"]',
            "if message.id in rows]",
        ),
        (
            "an attempt is closed once",
            'constants="finished_at",\n    guard="old.finished_at IS NULL",',
            'constants="finished_at",',
            "tests/outbox/delivery/test_attempts.py",
        ),
        (
            "an attempt is opened for what the claim holds",
            'OutboxMessage._meta.db_table, ["id", "lease_token", "state"])',
            'OutboxMessage._meta.db_table, ["id", "state"])',
            f"{STALLS}::test_what_another_worker_has_in_hand_since_the_look_is_not_sent_beside_it",
        ),
        (
            "an attempt is opened for what is in processing",
            'OutboxMessage._meta.db_table, ["id", "lease_token", "state"])',
            'OutboxMessage._meta.db_table, ["id", "lease_token"])',
            STALLS,
        ),
        (
            "nobody settles beyond the lease",
            "return claim.lease_left >= 0 and time.monotonic() < last",
            "return time.monotonic() < last",
            "tests/outbox/delivery/test_settle.py",
        ),
    ),
    *of(
        "outbox/delivery/overdue.py",
        STALE,
        (
            "what was claimed meanwhile does not expire",
            'constants="state error_class", guard="old.state = \'pending\'", span',
            'constants="state error_class", span',
        ),
        ("an expiry of fewer than were locked is taken back", "if ended != len(rows):", "if False:"),
        (
            "what was settled meanwhile is not recovered",
            'constants="lease_token lease_until",\n    guard="old.state = \'processing\'",',
            'constants="lease_token lease_until",',
        ),
        ("a recovery of fewer than were locked is taken back", "if changed != len(next_states):", "if False:"),
        (
            "only what is uncertain is retried",
            "uncertain = OutboxMessage.objects.among(ids).uncertain()",
            "uncertain = OutboxMessage.objects.among(ids)",
        ),
        (
            "only what is uncertain is given up",
            "among([m.id for m in messages]).uncertain()",
            "among([m.id for m in messages])",
        ),
        (
            "nobody decides before the time is over",
            ".uncertain().filter(available_at__lte=now)",
            ".uncertain()",
            RESCUE,
        ),
        ("a begun call is uncertain", "    if tried and not safe:", "    if False:", RESCUE),
        (
            "an attempt of an earlier lease says nothing",
            ".filter(lease_token__in=set(leases.values()))",
            "",
            "tests/outbox/delivery/test_attempts.py",
        ),
    ),
    *of(
        "outbox/messages/models.py",
        RESCUE,
        (
            "a lease that runs is left alone",
            'state="processing", lease_until__lte=now',
            'state="processing"',
            f"{RESCUE}::test_a_lease_that_still_runs_is_left_alone",
        ),
        (
            "what is closed is not closed again",
            "return self.open().update(finished_at=now",
            "return self.update(finished_at=now",
            "tests/outbox/delivery/test_attempts.py",
        ),
    ),
    *of(
        "outbox/delivery/levers.py",
        "tests/outbox/delivery/test_levers.py",
        (
            "a lever takes only rows in its states",
            "among(ids).filter(state__in=states).select_for_update()",
            "among(ids).select_for_update()",
        ),
        (
            "what was settled since the look is not changed by a lever",
            "among(self.ids).filter(state__in=self.states, **more)",
            "among(self.ids).filter(**more)",
            STALE,
        ),
        (
            "what a person sends again is no crash loop",
            "rows.filter(attempts__gt=settings.OUTBOX_MAX_RETRIES).update(attempts=settings.OUTBOX_MAX_RETRIES)",
            "pass",
            f"{RESCUE}::test_however_many_tries_were_made_before_what_a_person_sends_again_is_no_crash_loop",
        ),
        (
            "only what was sent is sent again",
            "filter(pk=message_id, state=State.SENT).select_for_update()",
            "filter(pk=message_id).select_for_update()",
            "tests/outbox/delivery/test_resend.py",
        ),
        (
            "an answer that is lost makes no second copy",
            "if ours := Resend.objects.filter(pk__in=made).first():",
            "if ours := None:",
            "tests/outbox/delivery/test_frozen_resends.py::test_a_session_that_ends_at_a_persons_commit_is_one_new_mail_and_no_fault",
        ),
        (
            "a batch judges behind its locks once more",
            "            if _why_not_now(message, family, now):\n                continue",
            "            pass",
            "tests/outbox/replay_batches/test_resend.py::test_whoever_is_faster_between_the_judgement_and_the_deed_wins",
        ),
        (
            "of two copies at once one is made",
            'key = f"{RESENT}{family.first}/{family.copies + 1}"',
            'key = f"{RESENT}{uuid.uuid4()}"',
            "tests/outbox/replay_batches/test_resend.py::test_each_is_said_again_once_after_a_canary_and_proven_by_its_receipt",
        ),
    ),
    *of(
        "outbox/delivery/levers.py",
        f"{RACES}::test_two_clicks_on_send_again_make_one_message_by_either_guard_alone",
        (
            "of two who ask at once the second sees the message of the first",
            "state=State.SENT).select_for_update().first()",
            "state=State.SENT).first()",
            f"{RACES}::test_two_clicks_on_send_again_make_one_message_by_either_guard_alone",
        ),
        server=True,
    ),
    *of(
        "outbox/delivery/message_letters.py",
        RESCUE,
        ("what did not end is not revived", "among(ids).filter(state__in=ENDED)", "among(ids)", STALE),
        ("a revival of fewer than were locked is taken back", "if changed != len(ids):", "if False:", STALE),
        (
            "two letters of one message revive it once",
            "elif message.state in ENDED and message.id not in revived:",
            "elif message.state in ENDED:",
            "tests/outbox/letters/test_proof.py",
        ),
        (
            "a sent message is made anew by no copy",
            "(letter.edit and message.state in ENDED)",
            "letter.edit",
            "tests/outbox/letters/edits/test_flows.py",
        ),
        (
            "a later letter of before is no failure",
            "if row.revision > letter.revision and row.created_at >= taken",
            "if row.revision > letter.revision",
            "tests/outbox/letters/test_proof.py",
        ),
    ),
    *of(
        "outbox/delivery/refusals.py",
        "tests/outbox/delivery/test_refusals.py",
        (
            "letters that are owed are not forgotten",
            "filter(requeue_since=None).update(**owed)",
            "update(**owed)",
            "tests/outbox/delivery/test_refusals.py::test_stragglers_refused_for_another_cause_do_not_make_it_forget_the_letters",
        ),
        (
            "what is owed since is not wiped out",
            "named(channel).filter(requeue_as=cause, requeue_since=since)",
            "named(channel)",
            "tests/outbox/delivery/test_refusals.py::test_what_a_channel_owes_since_its_letters_were_looked_for_is_not_forgotten",
        ),
    ),
    *of(
        "outbox/channels/permits.py",
        "tests/outbox/channels/test_permits.py",
        ("one worker gets the probe", "filter(probe_at=state.probe_at).update", "update"),
        ("a breaker opens once", "rows.filter(breaker=CLOSED, failures__gte", "rows.filter(failures__gte"),
        (
            "a shorter wait undoes no longer one",
            "waiting_less(until).update",
            "update",
            "tests/outbox/channels/test_permits.py::test_the_longest_wait_counts",
        ),
    ),
    *of(
        "outbox/channels/permits.py",
        f"{RACES}::test_two_workers_stay_below_the_rate",
        (
            "tokens are spent once",
            "locked=bool(per_second)",
            "locked=False",
            f"{RACES}::test_two_workers_stay_below_the_rate",
        ),
        server=True,
    ),
]
