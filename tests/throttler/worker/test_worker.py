"""A whole throttler on a broker and a database: what comes in leaves once, in order, at the customer's rate."""

import time
from datetime import UTC, datetime, timedelta
from itertools import chain

import msgspec
import pytest
from django.core.management import CommandError, call_command

from config.kafka import topic_name
from config.kafka.consumer.membership import Membership
from config.kafka.consumer.ports import ConsumerStopped
from config.kafka.transactional_producer import TransactionalProducer, Unknown
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from tests.throttler.worker.conftest import home_of, ids_in, ids_of, notification, records_of
from throttler.customers.models import Customer
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT
from throttler.lanes.read_model import FLOW
from throttler.models import Lane, OverflowMessage
from throttler.verify import checks

pytestmark = pytest.mark.django_db(transaction=True)


def letters():
    return sorted(DeadLetter.objects.values_list("reason", flat=True))


def failed_checks():
    return [check for check in checks() if not check.ok]


def test_live_and_buffered_messages_leave_once_and_in_order(send, run, customer):
    customer("busy", "40/s", 5)
    busy = [notification("busy") for _ in range(30)]
    quiet = [notification(f"quiet{number}") for number in range(20)]
    send(*busy, *quiet, b"{not json", b"")
    run()
    assert ids_in(OUTPUT) == {"busy": ids_of(busy), **{f"quiet{i}": ids_of([one]) for i, one in enumerate(quiet)}}
    first, *_rest = [record for record in records_of(OUTPUT) if b'"busy"' in record.value]
    assert dict(first.headers)["source"].startswith(topic_name(INPUT).encode())
    flags = [msgspec.json.decode(record.value)["throttled"] for record in records_of(OUTPUT)]
    assert flags.count(True) == OverflowMessage.objects.count() >= 20
    assert letters() == ["empty", "invalid_json"]
    assert Lane.objects.get(customer_id="busy").backlog == 0
    assert failed_checks() == []


def test_a_second_process_goes_on_where_the_first_one_ended(send, run, customer):
    customer("slow", "1/hour", 2)
    values = [notification("slow") for _ in range(6)]
    send(*values[:4])
    run(once=True)
    send(*values[4:])
    run(once=True)  # no fresh burst
    assert ids_in(OUTPUT) == {"slow": ids_of(values[:2])}
    assert Lane.objects.get().backlog == 4
    Customer.objects.update(rates="100/s", burst=None)
    run()
    assert ids_in(OUTPUT) == {"slow": ids_of(values)}
    assert failed_checks() == []


def test_once_also_sends_what_is_due_now(send, run, customer):
    for name, rates in (("held", "0/s"), ("slow", "1/hour")):
        customer(name, rates)
    held, slow = ([notification(name) for _ in range(3)] for name in ("held", "slow"))
    send(*held, *slow)
    run(once=True)
    Customer.objects.filter(customer_id="held").update(rates="100/s")
    run(once=True)
    assert ids_in(OUTPUT) == {"held": ids_of(held), "slow": ids_of(slow[:1])}


def test_the_value_says_whose_it_is_and_one_id_twice_are_two_messages(send, run):
    value = notification("one")
    send(value, value)  # under another key
    run()
    assert ids_in(OUTPUT) == {"one": 2 * ids_of([value])}
    assert {record.key for record in records_of(OUTPUT)} == {b"one"}
    assert len({dict(record.headers)["source"] for record in records_of(OUTPUT)}) == 2


def test_what_is_too_old_goes_to_the_expired_ones(send, run, customer):
    customer("held", "0/s")
    old = notification("fresh", created_at=(datetime.now(UTC) - timedelta(days=1)).isoformat())
    held = [notification("held", ttl_seconds=0), notification("held")]
    send(old, *held)
    run(until_idle=1.5)
    assert ids_in(OUTPUT) == {}
    assert ids_in(EXPIRED) == {"fresh": ids_of([old]), "held": ids_of(held[:1])}
    assert Lane.objects.get(customer_id="held").backlog == 1
    Customer.objects.update(purge_before=datetime.now(UTC) + timedelta(seconds=1))
    run(until_idle=1.5)
    reasons = [msgspec.json.decode(record.value)["reason"] for record in records_of(EXPIRED)]
    assert sorted(reasons) == ["purged", "ttl", "ttl"]
    assert failed_checks() == []


def test_a_worker_is_not_idle_before_it_has_read_what_is_there(send, run, monkeypatch):
    """On a busy machine the first records may take longer than the time for which nobody has anything to do."""
    poll, withheld = Membership.poll, [0.05] * 20

    def slow(member, timeout_ms):
        if member.rejoining or member.unplaced or not withheld:
            return poll(member, timeout_ms)
        time.sleep(withheld.pop())
        return []

    monkeypatch.setattr(Membership, "poll", slow)
    send(value := notification("acme"))
    run(until_idle=0.1)
    assert ids_in(OUTPUT) == {"acme": ids_of([value])}


def test_a_record_in_the_wrong_partition_is_forwarded_once(send, run):
    value = notification("stray")
    wrong = 1 - home_of(value)
    send(value, partition=wrong)
    send(marked := notification("stray"), partition=wrong, headers=[("forwarded", b"x")])
    run()
    assert sorted(ids_in(OUTPUT)["stray"]) == sorted(ids_of([value, marked]))
    totals = counters.totals(FLOW)
    assert (totals["forwarded"], totals["live"]) == (1, 2)
    assert failed_checks() == []


def test_the_rate_of_all_holds_back_everybody(send, run, settings):
    settings.THROTTLER_OUTPUT_RATE = "20/s"
    values = [notification(f"c{number % 8}") for number in range(40)]
    send(*values)
    run(until_idle=0.8)
    assert sorted(chain.from_iterable(ids_in(OUTPUT).values())) == sorted(ids_of(values))
    times = [record.timestamp for record in records_of(OUTPUT)]
    assert max(times) - min(times) > 1500
    assert failed_checks() == []


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_broker_that_takes_less_than_we_do_gets_a_letter(make_topic, send, run, broker, settings):
    from config.kafka import client

    admin = client.new_admin()
    resource = client.ConfigResource(client.ConfigResourceType.TOPIC, topic_name(OUTPUT), {"max.message.bytes": "2000"})
    admin.alter_configs([resource])
    admin.close()
    large, small = notification("one", message={"text": "x" * 5000}), notification("one")
    send(large, small)
    run()
    assert ids_in(OUTPUT) == {"one": ids_of([small])}
    assert letters() == ["broker_refused"]
    assert failed_checks() == []


@pytest.mark.parametrize("outcome", ["before", "behind"])
@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_an_unknown_outcome_is_read_from_kafka(send, run, customer, broker, monkeypatch, outcome):
    """The answer to a commit is lost, once; whether the commit was carried out is not known."""
    commit, left = TransactionalProducer.commit, [3, 5]

    def silent(self, offsets, metadata):
        left[:] = [number - 1 for number in left]
        if 0 not in left:
            return commit(self, offsets, metadata)
        if outcome == "behind":
            commit(self, offsets, metadata)
        self._dead = "lost"
        self._futures = []
        return Unknown("lost")

    monkeypatch.setattr(TransactionalProducer, "commit", silent)
    customer("busy", "20/s", 5)
    values = [notification("busy") for _ in range(30)]
    send(*values, b"{")
    run(until_idle=1)
    assert max(left) <= 0
    assert ids_in(OUTPUT) == {"busy": ids_of(values)}
    assert letters() == ["invalid_json"]
    assert failed_checks() == []


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_topics_of_different_partition_counts_stop_it(make_topic, run, broker, topics, settings):
    settings.KAFKA_TOPIC_PREFIX += "other."
    make_topic(INPUT, 2)
    make_topic(OUTPUT, 2)
    make_topic(EXPIRED, 1)
    make_topic("notifications-changelog", 2)
    with pytest.raises(ConsumerStopped, match="equally many partitions"):
        run()


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 101, "a/b"])
def test_a_name_that_no_group_would_take_is_misuse(name):
    with pytest.raises(CommandError, match="1 to 100 letters") as refused:
        call_command("run_throttler", "--once", instance=name)
    assert refused.value.returncode == 2
