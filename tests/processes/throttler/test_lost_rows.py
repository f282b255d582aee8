"""A database that is older than what the throttler's lanes know: its rows are read again, sent once and in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from outbox.models import DeadLetter
from tests.crash.throttler.topics import INPUT
from tests.crash.wire import wait_for
from tests.processes import backup
from tests.processes.throttler.throttlers import Throttlers, throttlers_on
from throttler.models import Lane, OverflowMessage

pytestmark = pytest.mark.kafka
CUSTOMERS = [f"c{number}" for number in range(20)]
KEPT, LOST = 4, 50  # rows of each: in the backup, and not


@pytest.fixture
def throttlers(transactional_db: None, tmp_path: Path) -> Iterator[Throttlers]:
    """Every customer has sent one message; the others wait, and most of them stand in no backup."""
    with throttlers_on(tmp_path, THROTTLER_DEFAULT_RATE="1/hour") as found:
        worker = found.start("a")
        found.send(1 + KEPT, CUSTOMERS)
        wait_until_stored(KEPT)
        copy = backup.take(("throttler", "outbox"))
        found.send(LOST, CUSTOMERS)
        wait_until_stored(KEPT + LOST)
        assert worker.stop() == 0
        backup.restore(copy)
        assert OverflowMessage.objects.count() == KEPT * len(CUSTOMERS)
        found.platform.environment["THROTTLER_DEFAULT_RATE"] = "1000/s"
        yield found


def wait_until_stored(each: int) -> None:
    """And until the mirror says so, which a backup then holds, too."""
    wanted = each * len(CUSTOMERS)
    wait_for(lambda: OverflowMessage.objects.count() == wanted, 120, f"{wanted} rows")
    wait_for(lambda: sum(Lane.objects.values_list("backlog", flat=True)) == wanted, 60, "the mirror")


def test_rows_that_a_backup_does_not_have_are_read_again(throttlers: Throttlers) -> None:
    worker = throttlers.start("a")
    throttlers.assert_all_left_once()
    assert worker.count("throttler_lost_rows_total") >= LOST * len(CUSTOMERS)
    assert worker.stop() == 0
    throttlers.platform.manage("verify", "--kafka")
    assert not DeadLetter.objects.exists()


def test_what_neither_backup_nor_log_has_is_named_in_letters(throttlers: Throttlers) -> None:
    begins = shorten(throttlers)
    stored = set(OverflowMessage.objects.values_list("partition", "offset"))
    came = {record.place: record.key.decode() for record in throttlers.input.read() if record.key}
    live = {record.source[1:] for record in throttlers.left()}
    gone = {place: key for place, key in came.items() if place[1] < begins[place[0]] and place not in stored | live}
    assert gone
    worker = throttlers.start("a")
    throttlers.wait_for(len(came) - len(gone))
    places = [record.source[1:] for record in throttlers.left()]
    assert sorted(places) == sorted(came.keys() - gone.keys())
    throttlers.assert_in_order()
    assert worker.stop() == 0
    assert lost() == {key: list(gone.values()).count(key) for key in gone.values()}
    throttlers.platform.manage("verify", "--kafka")


def shorten(throttlers: Throttlers) -> dict[int, int]:
    """Let the log begin in the middle of each partition; returns where."""
    ends: dict[int, int] = {}
    for record in throttlers.input.read():
        ends[record.partition] = record.offset + 1
    begins = {number: end // 2 for number, end in ends.items()}
    admin = kafka.KafkaAdminClient(**throttlers.wire.options)
    name = throttlers.wire.name(INPUT)
    admin.delete_records({kafka.TopicPartition(name, number): begin for number, begin in begins.items()})
    admin.close()
    return begins


def lost() -> dict[str, int]:
    """How many messages of whom the letters name."""
    found: dict[str, int] = {}
    for letter in DeadLetter.objects.filter(reason="messages_lost"):
        number = re.match(rf"(\d+) messages of {letter.business_key} between offsets", letter.error)
        assert number
        found[letter.business_key] = found.get(letter.business_key, 0) + int(number[1])
    return found
