"""A buffered message that the broker never takes: one letter, its lane goes on, and the counts add up."""

from contextlib import closing

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from config.kafka import client, topic_name
from outbox.letters.models import DeadLetter
from tests.throttler.worker.conftest import ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.engine.drain import Drain
from throttler.engine.output_transaction import OUTPUT
from throttler.models import Lane
from throttler.verify import checks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.parametrize("broker", ["kafka"], indirect=True)]
LARGE = 2
PATIENT = 5.0  # seconds: restoring after a refusal is idle time on a busy machine


@pytest.fixture
def values(send, run, customer):
    """Five messages of a held customer in the store, one of them larger than the output takes since."""
    customer("held", "0/s")
    found = [notification("held", message={"text": "x" * (3_000 if n == LARGE else 10)}) for n in range(5)]
    send(*found)
    run(until_idle=PATIENT)
    assert Lane.objects.get().backlog == 5
    limit(topic_name(OUTPUT))
    Customer.objects.update(rates="1000/s")
    return found


def limit(topic):
    with closing(client.new_admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"max.message.bytes": "1500"})])


def assert_one_letter(values):
    assert ids_in(OUTPUT) == {"held": ids_of([value for n, value in enumerate(values) if n != LARGE])}
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.offset, bytes(letter.payload)) == ("broker_refused", LARGE, values[LARGE])
    assert letter.business_key == ids_of(values)[LARGE]
    assert Lane.objects.get().backlog == 0
    assert [check for check in checks() if not check.ok] == []


def test_a_buffered_message_that_the_broker_refuses_is_one_letter(values, run):
    run(until_idle=PATIENT)
    assert_one_letter(values)


def test_a_process_that_dies_behind_the_letter_leaves_one(values, run, monkeypatch):
    def die(*arguments):
        raise SystemError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Drain, "pass_over", die)
        with pytest.raises(SystemError):
            run(until_idle=PATIENT)
    assert DeadLetter.objects.count() == 1
    assert Lane.objects.get().backlog > 0
    run(until_idle=PATIENT)
    assert_one_letter(values)
