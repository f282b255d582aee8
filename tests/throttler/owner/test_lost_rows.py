"""A store that lost rows: they are read again from the input and sent once, in order; what is gone is one letter."""

import pytest

from outbox.letters.models import DeadLetter
from tests.throttler.owner.conftest import ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.live.sending import OUTPUT
from throttler.models import Lane, OverflowMessage
from throttler.verify import checks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def values(send, run, customer):
    """Ten messages of a held customer, all of them in the store."""
    customer("held", "0/s")
    found = [notification("held") for _ in range(10)]
    send(*found)
    run()
    assert OverflowMessage.objects.count() == Lane.objects.get().backlog == 10
    return found


def released():
    Customer.objects.update(rates="1000/s")


def test_lost_rows_are_read_again_and_sent_in_order(values, run):
    OverflowMessage.objects.filter(offset__gte=3).delete()
    assert [check.ok for check in checks()].count(False) == 1
    released()
    run()
    assert ids_in(OUTPUT) == {"held": ids_of(values)}
    assert not DeadLetter.objects.exists()
    assert all(check.ok for check in checks())


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_what_the_log_no_longer_has_becomes_one_letter(values, run, broker):
    from config.kafka import client, topic_name

    admin = client.new_admin()
    place = client.TopicPartition(topic_name("notifications-in"), Lane.objects.get().partition)
    admin.delete_records({place: 5})
    admin.close()
    OverflowMessage.objects.filter(offset__lt=7).delete()
    released()
    run()
    assert ids_in(OUTPUT) == {"held": ids_of(values[5:])}
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.business_key) == ("messages_lost", "held")
    assert letter.error.startswith("5 messages of held between offsets 0 and 9 are")
    assert all(check.ok for check in checks())
