"""Guards of `throttler`."""

from __future__ import annotations

from tests.proof.guard import of

ENGINE = "tests/throttler/engine"
LIMITS = "tests/throttler/limits"
WORKER = "tests/throttler/worker"

GUARDS = [
    *of(
        "throttler/engine/decisions.py",
        f"{ENGINE}/test_decisions.py",
        ("what was decided before is neither sent nor counted again", "fresh = offset >= part.decided", "fresh = True"),
        ("what left is not stored again", "if lane.waits_for(offset):", "if True:"),
        ("what is behind a backlog does not go live", "if lane.backlog:  # only", "if False:  # only"),
        ("who is held sends nothing", "not terms.held\n            and (not", "True\n            and (not"),
        ("a notification is forwarded once", " or is_forwarded(decoded.record.headers):", ":"),
        (
            "nobody goes live before those who wait for the rate of all",
            "and (not self.output or self.output.has_room(now))\n            ",
            "",
            f"{ENGINE}/test_decisions.py",
        ),
        ("what goes live is spent of the rate of all", "self.output.spend(1)", "pass"),
        (
            "a message that may not fit is a letter",
            "if size > MAX_REQUEST_BYTES:",
            "if False:",
            f"{ENGINE}/test_transaction.py",
        ),
        (
            "a row that is stored again stands under the newest day",
            "self.row_of(decoded, lane.newest)",
            "self.row_of(decoded, lane.day)",
        ),
        (
            "what was a letter before a reset is counted as such",
            "if fresh and decoded.record.offset < part.decided_before:",
            "if False:",
        ),
    ),
    *of(
        "throttler/engine/partition.py",
        f"{ENGINE}/test_decisions.py {WORKER}/test_owner.py",
        (
            "the committed offset stays at the oldest row that is not stored",
            "min(self.stored_upto() + 1, ",
            "min(self.read, ",
        ),
        (
            "the committed offset stays at the oldest letter that is not stored",
            "self.unburied.first if self.unburied else self.read",
            "self.read",
        ),
        (
            "no page ends behind what was committed",
            "return min(lane.seen, self.stored_upto())",
            "return self.stored_upto()",
            f"{ENGINE}/test_drain.py",
        ),
        (
            "no page ends behind what is stored",
            "return min(lane.seen, self.stored_upto())",
            "return lane.seen",
            f"{ENGINE}/test_drain.py",
        ),
        (
            "what waits when lanes are forgotten is lost, and counted",
            "if (waited := self.totals",
            "if 0 and (waited := self.totals",
            f"{WORKER}/test_placing.py",
        ),
        ("a mark moves no position back", "if position > self.read:", "if True:"),
        ("a mark moves no decision back", "max(self.decided, position), True", "position, True"),
        ("batches up to the stored one are done, no further", "and self._batches[0].number <= number:", ":"),
    ),
    *of(
        "throttler/engine/drain.py",
        f"{ENGINE}/test_drain.py",
        (
            "a page is taken for the question that it answers",
            "if self.asked.get(key, (None, 0))[0] is not page.asked:",
            "if key not in self.asked:",
        ),
        (
            "a page with fewer rows than were stored suspends the lane",
            "if expected is None or count >= expected:",
            "if True:",
        ),
        ("of a suspended lane nothing leaves", "lane is None or key in self.suspended:", "lane is None:"),
        (
            "before a refused message a lane stops",
            "            if self.poisoned and (key[0], row.offset) in self.poisoned:\n                break\n",
            "",
        ),
        ("who is held drains nothing", "room = 0 if terms.held else allowance(", "room = allowance("),
        (
            "what expires takes nothing of the rate",
            "if not self._reason(row, terms, now):\n                if",
            "if True:\n                if",
        ),
        ("what leaves the backlog is spent", "spend(terms.rates, lane.limiter, now, sent)", "pass"),
        ("a store that was away is counted again", "        self._counted.clear()\n", "        pass\n"),
        ("a store that is away is not asked all the time", "now < self._away_until\n            or ", ""),
        ("a page is asked for once", "or key in self.asked\n            ", ""),
        (
            "a long lane is counted before it goes on",
            "counting = rest is not None and rest > ROWS and key not in self._counted",
            "counting = False",
        ),
        (
            "rows that may come again are not missed",
            "return lane.backlog - lane.waits if part.read >= part.decided else None",
            "return lane.backlog - lane.waits",
        ),
        (
            "a lane that was repaired drops what it had in hand",
            "        self.pages.pop(key, None)  # some",
            "        pass  # some",
        ),
        (
            "a letter of another row passes nothing over",
            "if self.refused.get(key) is not row or part is None or lane is None:",
            "if part is None or lane is None:",
        ),
        (
            "a partition that is given up leaves nothing behind",
            "            self._drop(key)\n\n    def round",
            "            pass\n\n    def round",
        ),
    ),
    *of(
        "throttler/engine/repair.py",
        f"{ENGINE}/test_repairs.py",
        (
            "whoever slept does not repair what others have drained",
            "if self._since.setdefault(key, time.monotonic()) >= heard:",
            "if self._since.setdefault(key, 0) < 0:",
        ),
        ("rows on their way to the store are no suspects", "lane.backlog - lane.waits\n", "lane.backlog\n"),
        (
            "an answer is taken for the question that it answers",
            "if self._asked.get(key) is answer.lane:",
            "if self._asked.get(key):",
        ),
        (
            "what a lane does not wait for is not stored again",
            "if suspect is None or not suspect.lane.drained < record.offset <= suspect.lane.upto:",
            "if suspect is None:",
        ),
        (
            "of a forwarded lane only what was forwarded is stored again",
            "if suspect.misplaced and not is_forwarded(record.headers):",
            "if False:",
        ),
        (
            "what is gone for good is a letter",
            "for suspect, gone in lanes if gone])",
            "for suspect, gone in lanes if not lanes])",
            f"{WORKER}/test_lost_rows.py",
        ),
        ("what is gone for good is lost", "lane.lose(gone)", "pass"),
        ("a topic that was created again repairs nothing", "reader.insist_on(topic_id)", "pass"),
    ),
    *of(
        "throttler/engine/row_writer.py",
        f"{ENGINE}/test_row_writer.py {WORKER}/test_owner.py",
        ("half of a round is not stored", "if self._waiting and self._waiting[0][0] == upto:", "if False:"),
        ("rows of a partition that was given up are not stored", "if kept[0].partition not in gone)", ")"),
        (
            "a refused row leaves its lane when its offset is passed",
            "if part and row.offset > part.stored_upto():",
            "if False:",
            f"{ENGINE}/test_repairs.py",
        ),
        (
            "a refused row leaves its lane once",
            "if part and lane and lane.waits_for(row.offset):",
            "if part and lane:",
            f"{ENGINE}/test_repairs.py",
        ),
        (
            "a row counts as refused behind the commit",
            "transaction.on_commit(lambda: self.refused.put(row))",
            "self.refused.put(row)",
        ),
        ("a round is taken up whole", "share.sort(key=lambda record: record.offset)", "pass"),
    ),
    *of(
        "throttler/limits/limiter.py",
        f"{LIMITS}/test_limiter.py",
        ("no more than a burst leaves at once", "    if tat - now_us <= rates.room_us:\n", "    if True:\n"),
        ("no more than a burst leaves at once with a quota", "    if ahead > rates.room_us:\n", "    if False:\n"),
        ("a quota is kept", "        if quota[2] >= window.limit:\n", "        if False:\n"),
        ("a quota is kept by a backlog", "free = min(free, window.limit - quota_of(state, window, now_us)[2])", "pass"),
        (
            "what was free is no credit",
            "state.tat = max(state.tat, now_us) + rates.worth_us(count)",
            "state.tat = state.tat + rates.worth_us(count)",
        ),
        (
            "a quota of a clock that was far ahead stays for one period",
            "        quota[1] = now_us\n    return quota",
            "        quota[1], quota[2] = now_us, 0\n    return quota",
        ),
    ),
    *of(
        "throttler/limits/rate.py",
        f"{LIMITS}/test_rate.py {LIMITS}/test_limiter.py",
        (
            "fractions are rounded against the sender",
            "return -(-count * shortest.period_us // shortest.limit)",
            "return count * shortest.period_us // shortest.limit",
        ),
        ("two rates of one period are refused", "if periods.count(period) > 1:", "if False:"),
        (
            "a rate of all is one rate",
            "if not rates.plain:\n        raise",
            "if False:\n        raise",
            f"{LIMITS}/test_rate.py tests/throttler/test_checks.py {WORKER}/test_start.py",
        ),
    ),
    *of(
        "throttler/limits/output_rate.py",
        f"{LIMITS}/test_bound.py {LIMITS}/test_shares.py {LIMITS}/test_division_model.py",
        (
            "what is in hand counts against the rate of all",
            "- self._in_hand - self._sent.count(now_us)",
            "- self._sent.count(now_us)",
        ),
        (
            "what left in the last second counts against the rate of all",
            "- self._in_hand - self._sent.count(now_us)",
            "- self._in_hand",
        ),
        (
            "a part that grew is not spent for the past",
            "speed = self.rate.limit * min(before, self._part)",
            "speed = self.rate.limit * self._part",
        ),
        (
            "nothing more is saved up than a moment's worth",
            "self._credit = min(self._credit + earned, most - self._in_hand * self._cost)",
            "self._credit += earned",
        ),
    ),
    *of(
        "throttler/customers/changes.py",
        "tests/throttler/customers tests/throttler/admin/test_customer_levers.py",
        (
            "a customer that somebody else changed meanwhile is not changed",
            "if not Customer.objects.still_as(row).update(**values, updated_at=moved):",
            "if not Customer.objects.filter(pk=row.pk).update(**values, updated_at=moved):",
        ),
        ("a version of a customer does not come twice", "moved = max(now, row.updated_at + MOMENT)", "moved = now"),
        ("no message lives longer than its row", "if seconds is None or 1 <= seconds <= longest_ttl():", "if True:"),
        ("who is held already is not held again", "    if row.held:\n", "    if False:\n"),
    ),
    *of(
        "throttler/customers/policy_cache.py",
        "tests/throttler/customers tests/throttler/worker/test_database_sync.py",
        ("a change that was committed late is polled", "changed_since(since - OVERLAP)", "changed_since(since)"),
        (
            "one bad row stops no other customer",
            "    except BadRates as error:\n        # Only",
            "    except ZeroDivisionError as error:\n        # Only",
        ),
    ),
    *of(
        "throttler/customers/models.py",
        "tests/throttler/customers",
        (
            "a customer is not deleted",
            "        raise ProtectedError(KEPT, set())",
            "        return models.QuerySet.delete(self)",
        ),
    ),
    *of(
        "throttler/overflow/django.py",
        "tests/throttler/overflow/test_store.py tests/throttler/overflow/test_newest_day.py tests/throttler/overflow/test_retention.py",
        (
            "an offset that is stored twice is read once",
            "            once = each_offset_once([*once, *more])\n        return once",
            "            once = [*once, *more]\n        return rows",
        ),
        ("an offset that is stored twice counts once", 'Count("offset", distinct=True)', 'Count("offset")'),
        (
            "a page ends where it was asked to",
            "Q(offset__gt=lane.drained, offset__lte=lane.upto)",
            "Q(offset__gt=lane.drained)",
        ),
        (
            "a page that a second row has shortened is read on",
            "while full and once and (rest := lane.limit - len(once)):",
            "while False and (rest := 0):",
        ),
    ),
    *of(
        "throttler/partitioned.py",
        "tests/throttler/overflow/test_retention.py",
        (
            "a day of which a lane waits is kept",
            '    if lane := waiting.order_by("day", "id").first():',
            "    if lane := None:",
        ),
        (
            "a day is kept while a lane's report is older",
            "if lane := Lane.objects.using(using).filter(backlog__gt=0, updated_at__lt=ended).first():",
            "if lane := None:",
        ),
        (
            "a day is kept while a partition's report is older",
            'if silent := LanePartition.objects.using(using).filter(updated_at__lt=ended).order_by("number").first():',
            "if silent := None:",
        ),
        (
            "a day is kept while an owner's report is older",
            "if owner.updated_at < ended and not set(owner.partitions) <= known:",
            "if False:",
        ),
        ("a day with rows is kept where no owner has reported", "if holds_rows and not owners:", "if False:"),
        ("a lane of an unknown day keeps every day", " | Q(day=None), backlog__gt=0)", ", backlog__gt=0)"),
    ),
]
