"""Guards of the ledger."""

from __future__ import annotations

from tests.proof.guard import of

LEDGER = "tests/buffer/ledger"

GUARDS = [
    *of(
        "buffer/ledger/statements.py",
        f"{LEDGER}/test_handler.py {LEDGER}/test_proof.py",
        (
            "a key counts once",
            """key="reference_id reference_type stock_id",
    update={},
    token="token",  # noqa: S106 (a column)
    returning""",
            """key="reference_id reference_type stock_id",
    update={"delta": "new.delta"},
    token="token",  # noqa: S106 (a column)
    returning""",
        ),
        (
            "another quantity under a known key is a conflict",
            """return "" if self.delta == row[2] else "conflicting_effect\"""",
            """return \"\"""",
        ),
        (
            "the same place with another payload is a conflict",
            "if not replayed and place == (topic, topic_id, row[3], row[4]) and self.payload_hash != row[6]:",
            "if False:",
        ),
        ("an edited copy at its own place is none", "if not replayed and place ==", "if place =="),
        (
            "places of another topic are not compared",
            "place == (topic, topic_id, row[3], row[4])",
            "place[2:] == (row[3], row[4])",
        ),
        (
            "stocks are added to",
            """update={"quantity": "old.quantity + new.quantity", """,
            """update={"quantity": "new.quantity", """,
        ),
    ),
    *of(
        "buffer/ledger/handler.py",
        f"{LEDGER}/test_handler.py {LEDGER}/test_races.py {LEDGER}/test_verify.py",
        (
            "a stock moves by what was recorded only",
            "mine = fresh[group] = {key: rows[key] for key in insert_movements(group, packed, topic_id, now)}",
            "insert_movements(group, packed, topic_id, now); mine = fresh[group] = dict(rows)",
        ),
        (
            "a known row that contradicts undoes what was recorded",
            "transaction.savepoint_rollback(savepoint)\n        if fresh",
            "pass\n        if fresh",
        ),
        (
            "a contradiction is found where all is recorded at once",
            "                if stored.contradiction(rows[key], topic, topic_id, replayed=batch.revision > 0):\n                    return None\n",
            "                pass\n",
        ),
        (
            "the other end of a transfer is looked at",
            "            if read_stocks(reference_type, wholes) != wholes:\n                return None\n",
            "            pass\n",
        ),
        ("two records of a batch that contradict are classified", "and not prepared.contradicts and", "and"),
        ("an unknown stock is not created where that is not the policy", "and self._exist(prepared.stocks):", ":"),
        ("a stock that went away is noticed", "        self._stocks.clear()\n", ""),
        (
            "a key that another worker records meanwhile is found",
            "if inserted == sum(map(len, classifier.wanted.values())):",
            "if True:",
        ),
        (
            "what was inserted before the second look is undone",
            "            transaction.savepoint_rollback(savepoint)\n        for",
            "        for",
        ),
        (
            "a key belongs to the first record that named it",
            "if left.pop((movements.reference_id, stock), None) is not None:",
            "if left.get((movements.reference_id, stock), None) is not None:",
        ),
        (
            "the oldest change of a row does not undo a newer one within a batch",
            "if known is None or at.newer_than(known[0]):",
            "if True:",
            f"{LEDGER}/test_mirror.py",
        ),
    ),
    *of(
        "buffer/ledger/batch.py",
        f"{LEDGER}/test_handler.py {LEDGER}/test_movements.py",
        (
            "a record applies wholly or not at all",
            "                return Verdict(wrong, row[1])\n",
            "                continue\n",
        ),
        ("a transfer with another end moves nothing", "if others := self._others(tracked):", "if others := set():"),
        ("an unknown stock is refused", "if quantity is None and not self.create_unknown:", "if False:"),
        (
            "a stock does not become negative where that is the policy",
            "if not self.allow_negative and delta < 0 and",
            "if False and",
        ),
        (
            "a receipt into a negative stock is taken",
            "self.allow_negative and delta < 0 and",
            "self.allow_negative and",
        ),
        (
            "what a batch has moved counts for its next record",
            "self.quantities[stock] = self.quantities.get(stock, 0) + delta",
            "pass",
        ),
        (
            "what a batch has recorded is known to its next record",
            "known[key] = KnownMovement(delta, *place, payload_hash)",
            "pass",
        ),
        (
            "a parked record makes nothing known",
            "            if refusal := self._refusal(row[1], row[2]):",
            "            self._record(group, [row], place, whole=False)\n            if refusal := self._refusal(row[1], row[2]):",
        ),
        (
            "a record whose ends differ within a batch is classified",
            "self.contradicts |= stocks != deltas.keys()",
            "pass",
        ),
    ),
    *of(
        "buffer/ledger/stocktake.py",
        f"{LEDGER}/test_opening.py {LEDGER}/test_races.py tests/buffer/admin/test_stock_pages.py",
        (
            "a stock that moved since it was seen is not corrected",
            "if quantity is not None and quantity != seen and not known:",
            "if False:",
        ),
        (
            "the same adjustment again changes nothing",
            "        if known:\n            return _again",
            "        if False:\n            return _again",
        ),
        (
            "an adjustment that was made otherwise is refused",
            "if known.stock_id != stock_id or known.payload_hash not in (request, 0):",
            "if False:",
        ),
        (
            "another quantity for an opened stock is refused",
            "if stored and stored.delta != line.quantity:",
            "if False:",
        ),
        (
            "another place for an opened stock is refused",
            "elif stored and stored.payload_hash not in (line.place, 0):",
            "elif False:",
        ),
        ("a file with a line that is refused changes nothing", "if expected.refused or dry_run:", "if dry_run:"),
        ("a stock stands once in a file", "if line and line.stock_id in seen:", "if False:"),
        ("only what was recorded is opened", "        if line.stock_id in fresh\n", ""),
    ),
    *of(
        "buffer/ledger/movement_letters.py",
        f"{LEDGER}/test_proof.py",
        (
            "another delta in the ledger is no proof",
            "recorded.get((kind, reference, stock)) != delta]",
            "(kind, reference, stock) not in recorded]",
        ),
        ("rows that do not stand prove nothing", "    if missing:\n", "    if False:\n"),
        (
            "what failed again is not proved",
            "if letter.pk in failed or id(record) in refused:",
            "if id(record) in refused:",
        ),
    ),
    *of(
        "buffer/ledger/topics.py",
        f"{LEDGER}/test_movements.py {LEDGER}/test_handler.py",
        ("a transfer to itself is refused", "if message.from_stock_id == message.to_stock_id:", "if False:"),
        (
            "an item that is not done uses nothing up",
            "if message.status != DONE or message.materials == []:",
            "if message.materials == []:",
        ),
        (
            "a done item says what it used",
            '    if message.materials is None:\n        raise InvalidRecord("wrong_field", "Object missing',
            '    if message.materials is None:\n        return None\n        raise InvalidRecord("wrong_field", "Object missing',
        ),
        ("a reference that fits no column is refused", "if len(reference) > IDENTIFIER_LENGTH:", "if False:"),
    ),
]
