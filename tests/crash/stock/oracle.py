"""The ledger's oracle: what must be in stock, in the ledger and among the letters, from what was produced alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.oracle import Finding, Produced, differences, one_letter_each
from tests.crash.stock.traffic import OPENING, TYPES, Message

Key = tuple[str, str, str]  # reference type, reference, stock


@dataclass
class Expected:
    """What follows from the log: one record of each reference counts, contradictions and poison are letters."""

    ledger: dict[Key, int] = field(default_factory=dict)
    quantities: Counter[str] = field(default_factory=Counter)
    refused: list[Produced] = field(default_factory=list)
    duplicates: int = 0
    applied: int = 0


def expect(produced: Iterable[Produced], names: Sequence[str]) -> Expected:
    """Judge the log partition by partition: the records of a reference share its key, and so a partition."""
    found = Expected({("OPENING", name, name): OPENING for name in names}, Counter(dict.fromkeys(names, OPENING)))
    taken: dict[tuple[str, str], Mapping[str, int]] = {}
    for record in sorted(produced, key=lambda record: (record.sample.topic, record.place)):
        message: Message = record.sample  # type: ignore[assignment]
        if message.deltas is None:
            found.refused.append(record)
            continue
        if not message.deltas:
            continue
        reference = (TYPES[message.topic], message.reference)
        if reference not in taken:
            taken[reference] = message.deltas
            found.applied += 1
            found.ledger.update({(*reference, stock): delta for stock, delta in message.deltas.items()})
            found.quantities.update(message.deltas)
        elif taken[reference] == message.deltas:
            found.duplicates += 1
        else:
            found.refused.append(record)
    return found


def judge(
    produced: Sequence[Produced],
    names: Sequence[str],
    quantities: Mapping[str, int],
    ledger: Sequence[tuple[str, str, str, int]],
    letters: Sequence[Mapping[str, Any]],
    prefix: str,
) -> list[Finding]:
    """`ledger` and `quantities` as they stand in the tables, `letters` as `dead_letters list --json` prints them."""
    expected = expect(produced, names)
    return [
        quantities_agree(expected, quantities),
        rows_agree(expected, ledger),
        sums_agree(quantities, ledger),
        one_letter_each("each refused record is one letter with its raw bytes", expected.refused, letters, prefix),
    ]


def quantities_agree(expected: Expected, quantities: Mapping[str, int]) -> Finding:
    wanted = dict(expected.quantities)
    figures = f"{len(wanted)} stocks, {expected.applied} references, {expected.duplicates} of them again"
    wrong = differences(wanted, quantities)
    return Finding("final quantities are the sums over distinct references", figures, wrong)


def rows_agree(expected: Expected, ledger: Sequence[tuple[str, str, str, int]]) -> Finding:
    found = Counter(row[:3] for row in ledger)
    deltas: dict[Key, int] = {row[:3]: row[3] for row in ledger}
    offenders: list[Any] = [{"rows": number, "key": key} for key, number in found.items() if number > 1]
    offenders += differences(expected.ledger, deltas)
    return Finding("one row of the ledger for each distinct key, with its delta", f"{len(ledger)} rows", offenders)


def sums_agree(quantities: Mapping[str, int], ledger: Sequence[tuple[str, str, str, int]]) -> Finding:
    sums = dict.fromkeys(quantities, 0)
    for _type, _reference, stock, delta in ledger:
        sums[stock] = sums.get(stock, 0) + delta
    wrong = differences(sums, quantities)
    return Finding("the deltas of every stock sum up to its quantity", f"{sum(quantities.values())} pieces", wrong)


def numbers_of(account: str) -> dict[str, int]:
    """What a replay says of the records it read."""
    found = re.findall(r"^(\S.*?) +([\d,]+)$", account, re.MULTILINE)
    return {label: int(value.replace(",", "")) for label, value in found}


def nothing_replayed(topic: str, code: int, account: str) -> Finding:
    """A replay of what has been applied finds nothing to do, and says so."""
    numbers = numbers_of(account)
    read = numbers.get("read", 0)
    ok = code == 0 and read and numbers == {**dict.fromkeys(numbers, 0), "read": read, "already applied": read}
    offenders = [] if ok and "nothing has changed" in account else [{"exit code": code, "account": account[-500:]}]
    return Finding(f"a replay of all of {topic} changes nothing and says so", f"{read} read", offenders)


def restored(before: Any, lost: int, after: Any, accounts: Sequence[tuple[int, str]]) -> Finding:
    """Exactly what was lost is back: the same movements from the same positions."""
    applied = sum(numbers_of(account).get("applied", 0) for _code, account in accounts)
    parked = sum(numbers_of(account).get("parked", 0) for _code, account in accounts)
    offenders: list[Any] = [account[-500:] for code, account in accounts if code]
    if (applied, parked) != (lost, 0) or not lost:
        offenders.append({"references lost": lost, "applied": applied, "parked": parked})
    offenders += differences(before[0], after[0])
    offenders += [{"differs": row} for row in sorted(before[1] ^ after[1], key=str)]
    return Finding(
        "a lost day is restored exactly by replaying it", f"{lost} references lost, {applied} applied", offenders
    )
