"""Reading ahead: the next letters come on another connection, each is judged once, and an error is the step's own."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, transaction

from config.database.clock import database_now
from outbox.replay_batches import preview
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.preview import JudgedTo, Portion, ReadAhead, reading_ahead
from tests.outbox.replay_batches.scripted_flow import assert_counted, draft, letters

pytestmark = pytest.mark.django_db(transaction=True)
with_a_server = pytest.mark.skipif(connection.vendor == "sqlite", reason="on SQLite nothing is read ahead")


@pytest.fixture
def pinned(settings):
    """Number of a batch of sixty letters, judged ten at a time, and the token that holds it."""
    settings.REPLAY_CHUNK = 5
    letters(60)
    batch, token = draft(), uuid.uuid4()
    ReplayBatch.objects.take(batch.pk, token, database_now())
    preview.pin(batch.pk, token)
    return batch.pk, token


@pytest.fixture
def portions(monkeypatch):
    """(thread, portion) of each that was read."""
    found, read = [], preview.portion_behind

    def reading(place):
        found.append((threading.current_thread(), read(place)))
        return found[-1][1]

    monkeypatch.setattr(preview, "portion_behind", reading)
    return found


@with_a_server
def test_the_next_letters_are_read_while_these_are_judged(pinned, portions, scripted, monkeypatch):
    judge, judged = scripted.judge, []

    def judging_beside(self, asked, now):
        judged.extend(letter.pk for letter in asked)
        waiting = threading.Event()
        while len(portions) * 10 <= len(judged) < 60:  # until those after these were read
            waiting.wait(0.01)
        return judge(self, asked, now)

    monkeypatch.setattr(scripted, "judge", judging_beside)
    assert preview.judge_chunks(*pinned) == 60
    assert judged == sorted(set(judged))
    threads = [thread.name for thread, _ in portions]
    assert threads[0] == threading.current_thread().name
    assert len(set(threads[1:])) == 1
    assert threads[1].startswith("ahead")
    assert_counted(ReplayBatch.objects.get())


def test_a_count_begun_anew_begins_with_the_first_letter(pinned, portions):
    with reading_ahead(preview.portion_behind) as reader:
        preview.judge(*pinned, reader)
        ReplayBatch.objects.update(**preview.AGAIN)
        preview.judge(*pinned, reader)
    first = portions[0][1]
    assert ReplayBatch.objects.get().judged_to == first.items[-1].letter


@with_a_server
def test_an_error_of_the_reader_is_raised_where_it_is_missed_and_nothing_is_skipped(pinned, monkeypatch):
    read, main = preview.portion_behind, threading.current_thread()

    def away(place):
        if threading.current_thread() is not main:
            raise OperationalError("the server has gone away")
        return read(place)

    monkeypatch.setattr(preview, "portion_behind", away)
    with pytest.raises(OperationalError, match="gone away"):
        preview.judge_chunks(*pinned)
    monkeypatch.undo()
    assert preview.judge_chunks(*pinned) == 50
    assert_counted(ReplayBatch.objects.get())


def test_in_a_transaction_of_the_caller_all_is_read_in_it(pinned, portions):
    with transaction.atomic():
        letters(1)
        assert preview.judge_chunks(*pinned) == 60
    assert {thread for thread, _ in portions} == {threading.current_thread()}


@with_a_server
def test_the_thread_takes_its_connection_with_it(pinned, monkeypatch):
    opened = []
    read = preview.portion_behind

    def reading(place):
        found = read(place)
        opened.append(connection.connection)
        return found

    monkeypatch.setattr(preview, "portion_behind", reading)
    preview.judge_chunks(*pinned)
    others = [session for session in opened if session is not connection.connection]
    assert others
    assert all(_closed(session) for session in others)


def _closed(session):
    try:
        session.cursor().execute("SELECT 1")
    except Exception:
        return True
    return False


def test_what_was_read_ahead_of_another_place_is_not_taken_for_this_one():
    here, there = (JudgedTo(7, "requeue", uuid.UUID(int=number)) for number in (1, 2))
    with ThreadPoolExecutor(1) as thread:
        portions = ReadAhead(lambda place: Portion([place], {}), thread)
        for begun in (here, there):
            portions.begin(begun)
            assert portions.take(here) == Portion([here], {})
