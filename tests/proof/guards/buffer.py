"""Guards of `buffer`."""

from __future__ import annotations

from tests.proof.guard import of

FLUSH = "tests/buffer/flush"
INGEST = "tests/buffer/ingest"

GUARDS = [
    *of(
        "buffer/flush/claim.py",
        f"{FLUSH}/test_claim.py {FLUSH}/test_due.py {FLUSH}/test_flusher.py",
        (
            "silence of a consumer that is behind is not idleness",
            "read_at is not None and bucket.idle_at is not None and bucket.idle_at <= read_at",
            "bucket.idle_at is not None and bucket.idle_at <= now",
        ),
        ("a stopped partition is not heard", "of_topic(stream.topic).running()", "of_topic(stream.topic)"),
        (
            "a round cuts no more orders than it may",
            "elif not chosen or expected + bucket.open_count <= EVENTS_A_ROUND:",
            "else:",
        ),
        (
            "only an order that is still open is claimed",
            """    guard="old.status = 'pending'",""",
            """    guard="1 = 1",""",
        ),
        ("a claim that gets fewer orders than it cut commits nothing", "if taken != len(rows):", "if False:"),
        (
            "a batch waits for an older one of its location",
            "free = location not in blocked",
            "free = True",
            f"{FLUSH}/test_publish.py",
        ),
        (
            "a fault of our own sets no order aside",
            "if not is_refusal(error):\n                raise\n            if len",
            "if len",
            f"{FLUSH}/test_set_aside.py",
        ),
        (
            "what was cut no longer counts as open",
            'counters.add({(stream.name, "flush", "open"): -taken}, now)',
            "pass",
        ),
        ("what is left over is due at once", "due = now if taken else now + RETRY_EMPTY", "due = bucket.cap_at or now"),
        ("a bucket whose count is wrong is recounted", "if left and not taken:", "if False:"),
    ),
    *of(
        "buffer/flush/claim.py",
        "tests/buffer/test_races.py",
        ("two flushers do not take the same bucket", "filter(**which).lock_free()", "filter(**which)"),
        server=True,
    ),
    *of(
        "buffer/flush/freeze.py",
        f"{FLUSH}/test_freeze.py",
        ("other content has another id", "event.source_offset, event.payload_hash)", "event.source_offset)"),
        (
            "the id tells the place in the sequence",
            "(stream, location, str(sequence), fingerprint)",
            "(stream, location, fingerprint)",
        ),
        ("the same orders have the same id in any order", "content = sorted(", "content = list("),
        ("a message stays within its bytes", " or size + weight > stream.max_bytes", ""),
        ("a message names one topic", "if len({event.topic_id for event in events}) > 1:", "if False:"),
    ),
    *of(
        "buffer/flush/flusher.py",
        f"{FLUSH}/test_publish.py {FLUSH}/test_flusher.py {FLUSH}/test_flusher_gap.py {FLUSH}/test_stalls.py",
        (
            "a batch does not overtake an older one that another flusher holds",
            "if batch.sequence < first_foreign[batch.stream, batch.location_id]]",
            "]",
        ),
        ("a zombie settles nothing that its heir holds", "claimed().held_by(token).filter(", "claimed().filter("),
        (
            "a batch that was closed meanwhile is not settled",
            "Batch.objects.claimed().held_by(token)",
            "Batch.objects.held_by(token)",
        ),
        ("only a claimed batch becomes sent", """    guard="old.status = 'claimed'",""", """    guard="1 = 1","""),
        ("a batch that changes under its lock is not counted", "if settled != len(results):", "if False:"),
        ("while the broker is away nothing is cut", "            if self.broker_away:\n                break\n", ""),
        (
            "before a restore has caught up nothing is cut",
            "for stream in () if self.waiting else self.streams:",
            "for stream in self.streams:",
        ),
        ("a new connection may lead to another database", "if connection.connection is None:", "if False:"),
        (
            "a broker that is away closes no gap",
            "            return True\n        if behind:",
            "            return False\n        if behind:",
        ),
        (
            "a flusher takes up what it left behind itself",
            "lease_unsent(self.streams, self.token)",
            "lease_unsent(self.streams)",
        ),
        (
            "a broken settlement is repeated",
            "lambda failures, _remedy: failures < SETTLE_ATTEMPTS",
            "lambda failures, _remedy: False",
        ),
        (
            "who fails waits before the next try",
            "lease_token=None, lease_until=later",
            "lease_token=None, lease_until=None",
        ),
        (
            "a supplement's order counts once",
            "orders = 0 if batch.supplement_of else batch.event_count",
            "orders = batch.event_count",
        ),
    ),
    *of(
        "buffer/flush/batch_letters.py",
        f"{FLUSH}/test_publish.py tests/buffer/test_proof.py {FLUSH}/test_set_aside.py",
        (
            "an order that changed meanwhile is not set aside",
            """{"pk": event.id, "payload_hash": event.payload_hash, "source_offset": event.source_offset}""",
            """{"pk": event.id}""",
        ),
        ("an order that is set aside counts as open no more", "Bucket.objects.filter(pk=bucket).shrink(1)", "pass"),
        (
            "an order is not set aside without its letter",
            "if not bury([_letter(stream, order, error)], topic_name(GROUP), now):",
            "if bury([], topic_name(GROUP), now):",
        ),
        (
            "a letter that comes again is of the next revision",
            """0 if known["last"] is None else known["last"] + 1""",
            "0",
        ),
        (
            "only a parked batch is freed",
            "rows = Batch.objects.parked().filter(pk__in=_ids(letters))",
            "rows = Batch.objects.filter(pk__in=_ids(letters))",
        ),
        (
            "only a parked batch is discarded",
            "_locked(letters, Status.PARKED)",
            "{b.pk: b for b in Batch.objects.filter(pk__in=_ids(letters))}",
        ),
        (
            "a supplement that was made up for is not restored",
            "if batch.made_up_at:",
            "if False:",
            "tests/buffer/test_downstream.py::test_one_that_was_made_up_for_is_not_restored",
        ),
        (
            "a batch is not restored without its orders",
            "if gone := len(batch.event_ids) - len(orders):",
            "if gone := 0:",
        ),
        (
            "only a discarded batch is restored",
            "_locked(letters, Status.DISCARDED)",
            "{b.pk: b for b in Batch.objects.filter(pk__in=_ids(letters))}",
        ),
        (
            "refused again is failed again, whatever became of the batch then",
            "    if after:  #",
            "    if False and after:  #",
        ),
    ),
    *of(
        "buffer/events/models.py",
        "tests/buffer/events tests/buffer/ingest/test_handler.py tests/buffer/flush/test_flusher.py",
        (
            "a batch discards only orders that it holds",
            """filter(id__in=batch.event_ids, batch_id=batch.pk, status="claimed")""",
            """filter(id__in=batch.event_ids, status="claimed")""",
        ),
        (
            "a batch gives back only orders that were discarded with it",
            """filter(id__in=batch.event_ids, batch_id=batch.pk, status="discarded")""",
            """filter(id__in=batch.event_ids, status="discarded")""",
            "tests/buffer/test_proof.py",
        ),
        (
            "a held bucket is not made due",
            """self.filled().running().exclude(urged="manual")""",
            """self.filled().exclude(urged="manual")""",
        ),
        (
            "a released bucket with orders is due",
            "When(open_count__gt=0, then=Value(now, DateTimeField()))",
            "When(open_count__gt=0, then=None)",
        ),
        ("only held buckets are released", "self.held().update(due_at=due", "self.update(due_at=due"),
        ("a bucket that is held is due no more", "update(held=True, due_at=None)", "update(held=True)"),
        ("an order reads as sent only when its batch is", " AND NOT {self._waits(compiler)}", ""),
        ("an order of a parked batch is not sent", "IN ('claimed', 'parked')", "IN ('claimed')"),
        (
            "a batch that is put elsewhere has no lease",
            "status=status, lease_token=None, lease_until=None,",
            "status=status,",
            "tests/buffer/flush tests/buffer/test_proof.py",
        ),
    ),
    *of(
        "buffer/events/arrivals.py",
        "tests/buffer/events tests/buffer/ingest/test_handler.py tests/buffer/ledger/test_mirror.py",
        (
            "a held bucket fills and is not due",
            'CASE WHEN old.held THEN NULL "\n            f"WHEN',
            'CASE "\n            f"WHEN',
        ),
        (
            "a further order moves no cap",
            "WHEN old.open_count > 0 THEN old.cap_at ELSE",
            "WHEN 1 = 0 THEN old.cap_at ELSE",
        ),
        (
            "a full bucket stays due since it was full",
            "AND (old.due_at IS NULL OR old.due_at > new.last_arrival) THEN",
            "THEN",
        ),
        (
            "offsets of another incarnation are not compared",
            "WHEN old.topic_id = new.topic_id AND old.source_partition",
            "WHEN old.source_partition",
        ),
        (
            "offsets of another partition are not compared",
            "new.topic_id AND old.source_partition = new.source_partition",
            "new.topic_id",
        ),
        (
            "two versions of one time are in the same order everywhere",
            "(old.source_timestamp = new.source_timestamp AND old.source_partition < new.source_partition)",
            "(1 = 0)",
        ),
        (
            "a bucket that was counted empty and is not is looked at",
            """{"due_at": now} if bucket.due_at is None and not bucket.held else {}""",
            "{}",
        ),
        (
            "who counts a held bucket anew does not make it due",
            "bucket.due_at is None and not bucket.held",
            "bucket.due_at is None",
        ),
    ),
    *of(
        "buffer/events/levers.py",
        "tests/buffer/events/test_levers.py",
        (
            "only open orders are withdrawn",
            "BufferedEvent.objects.select_for_update().pending()",
            "BufferedEvent.objects.select_for_update()",
        ),
        (
            "an order that changes under its lock is not withdrawn",
            "pending = BufferedEvent.objects.pending().in_months(months)",
            "pending = BufferedEvent.objects.in_months(months)",
        ),
        ("fewer orders than were locked are not withdrawn", "if changed != len(rows):", "if False:"),
        ("what was withdrawn waits no longer in its bucket", "        _shrink_buckets(rows, now)\n", ""),
    ),
    *of(
        "buffer/ingest/handler.py",
        f"{INGEST}/test_handler.py {INGEST}/test_restore.py tests/buffer/flush/test_claim.py {INGEST}/test_sent_orders.py",
        (
            "nothing overwrites what a batch has claimed",
            """guard=f"old.status = 'pending' AND {NEWER}",""",
            """guard=NEWER,""",
        ),
        (
            "an older version overwrites no newer one",
            """guard=f"old.status = 'pending' AND {NEWER}",""",
            """guard="old.status = 'pending'",""",
        ),
        (
            "an order that changed since it was classified is classified again",
            """prune=sorted({row[0] for row in seen})) != len(seen):""",
            """prune=sorted({row[0] for row in seen})) == -1:""",
        ),
        (
            "what was seen is remembered under the payload that it was classified by",
            """guard="old.payload_hash = new.payload_hash",""",
            """guard="1 = 1",""",
        ),
        (
            "within a batch the newest version wins",
            """if position(row, "").newer_than(position(known, "")):""",
            "if True:",
        ),
        ("an order outside the window is a letter", "if not first <= month <= last:", "if False:"),
        ("an order before the window is a letter", "if month < first and batch.from_log:", "if month < first:"),
        (
            "a gap is closed after the commit",
            "transaction.on_commit(partial(self._close_gaps, regaining, batch))",
            "self._close_gaps(regaining, batch)",
        ),
        (
            "after a restore what was sent is marked",
            "outcome.settled = mark_sent(self.stream, changed, regaining.sent, now)",
            "outcome.settled = set()",
        ),
        (
            "a place in another topic says nothing of what was sent",
            "if regaining is None or not regaining.is_about(_topic_id(batch)):",
            "if regaining is None:",
        ),
        ("pressure ends at the low mark", "(LOW_WATER if self._pressed else 1)", "1"),
        ("a further gap keeps those that are known", "known.update(gaps)  #", "known = dict(gaps)  #"),
    ),
    *of(
        "buffer/ingest/batch.py",
        f"{INGEST}/test_handler.py {INGEST}/test_order_classifier.py",
        (
            "the same place with another payload is an alarm",
            "if at[:3] == self.source[:3] and payload_hash != self.stored.payload_hash:",
            "if False:",
        ),
        ("what was seen is no second letter", " or not at.newer_than(self.seen):", ":"),
        ("what is older than the row is a redelivery", "not at.newer_than(self.source) or ", ""),
        (
            "the same word again is no second letter",
            """return "redelivered" if repeated else "late_event\"""",
            """return "late_event\"""",
        ),
        ("letters that were there before are repeats", 'self.outcomes[at, "redelivered"] += 1', "pass"),
    ),
    *of(
        "buffer/ingest/after_restore.py",
        f"{INGEST}/test_sent_orders.py {INGEST}/test_restore.py",
        (
            "what comes after is known within a partition only",
            "version is not None and version.partition == partition and offset",
            "version is not None and offset",
        ),
        (
            "only the version that was sent is marked",
            'source_partition source_offset",\n    changes="batch_id"',
            '",\n    changes="batch_id source_partition source_offset"',
        ),
        ("only an order that waits is marked as sent", """guard="old.status = 'pending'",""", """guard="1 = 1","""),
        (
            "a batch that names another id in its header is none of ours",
            """ or headers.get("batch_id") != str(batch.batch_id).encode()""",
            "",
        ),
        ("a batch with a place missing is none of ours", "len(batch.order_ids) != len(positions) or ", ""),
        (
            "a batch of another topic is older than this one",
            "if topic_id and known and known != topic_id:",
            "if False:",
        ),
        ("a gap that does not end below is not closed", "if ends.get(tp, 0) >= end]", "]"),
        ("of two versions that were sent the newer counts", " or known.offset < version.offset:", ":"),
    ),
    *of(
        "buffer/flush/supplement.py",
        "tests/buffer/test_supplement.py tests/buffer/events/test_levers.py tests/buffer/test_downstream.py",
        ("a late order is of the next revision", "old.revision < new.revision AND {guard}", "{guard}"),
        (
            "a late order keeps the state that it was read with",
            """REPLACE = _rewrite(f"status {CONTENT}", "", "old.status = new.status")""",
            """REPLACE = _rewrite(f"status {CONTENT}", "", "1 = 1")""",
        ),
        (
            "only a discarded order is opened again",
            """"status batch_id", "old.status = 'discarded'")""",
            """"status batch_id", "1 = 1")""",
        ),
        ("fewer orders than were locked are not changed", "if changed != len(rows):", "if False:"),
        (
            "a supplement is made up for once",
            "Batch.objects.missing().filter(pk__in=work.made_up)",
            "Batch.objects.filter(pk__in=work.made_up)",
        ),
        (
            "a supplement that changed since it was read is made up for by nothing",
            "update(made_up_at=work.now) != len(work.made_up):",
            "update(made_up_at=work.now) == -1:",
        ),
        (
            "a supplement waits for its original",
            "if event is None or event.status == Status.CLAIMED:\n            work",
            "if event is None:\n            work",
        ),
        (
            "an older version changes nothing",
            "    if not late.is_news_to(event, missing.values()):\n        return Effect",
            "    if False:\n        return Effect",
        ),
        (
            "a supplement that makes up for another has an id of its own",
            """"/".join([place, *sorted(map(str, missing))])""",
            "place",
        ),
        (
            "a supplement takes a number of its own",
            "sequences[event.location_id] += 1",
            "sequences[event.location_id] += 0",
        ),
        (
            "an order that is opened again counts in its bucket",
            "work.arrivals[event.location_id] = (number + 1, late.at.partition)",
            "work.arrivals[event.location_id] = (number, late.at.partition)",
        ),
        ("a late order is locked", "events = rows.select_for_update() if lock else rows", "events = rows"),
    ),
    *of(
        "buffer/order_letters.py",
        "tests/buffer/test_proof.py tests/buffer/flush/test_set_aside.py tests/buffer/events/test_levers.py",
        (
            "a batch that is cut proves nothing",
            "return effect_of_batch(row.batch, batches.get(row.batch))",
            "return Effect('resolved', '')",
        ),
        ("an order that was withdrawn closes its letter as discarded", "if row.batch == NO_BATCH:", "if False:"),
        (
            "what failed again is not proved by what came after it",
            "if after := again.get(letter.pk):",
            "if after := None:",
        ),
    ),
    *of(
        "buffer/partitioned.py",
        "tests/buffer/test_retention.py",
        (
            "a month with orders that wait is not dropped",
            "status = 'pending' OR status = 'claimed' AND",
            "status = 'claimed' AND",
        ),
        (
            "a month with orders of unsent batches is not dropped",
            "status = 'pending' OR status = 'claimed' AND buffer_bufferedevent.batch_id IN ({UNSENT})",
            "status = 'pending'",
        ),
        ("a batch that was not sent is not swept", """, status__in=("sent", "discarded"))""", ")"),
        (
            "sent batches that are swept are counted",
            '{(stream, "flush", BATCHES_SWEPT): swept for',
            '{(stream, "flush", BATCHES_SWEPT): 0 for',
        ),
    ),
]
