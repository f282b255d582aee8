"""Records that are removed unread under a rebuild: it ends with one line, nothing leaves, and it can be run again."""

from contextlib import closing

import pytest
from django.core.management import CommandError, call_command

from buffer.events.models import Bucket, BufferedEvent
from buffer.ingest import rebuild
from config.kafka import client
from tests.config.conftest import broker, make_topic
from tests.conftest import order

__all__ = ["broker", "make_topic"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_a_rebuild_says_that_records_were_removed_and_is_run_again(make_topic, broker, stream, monkeypatch):
    topic = make_topic(stream.topic)
    make_topic(stream.output)
    with closing(client.new_producer()) as producer:
        for number in range(5):
            producer.send(topic, value=order(f"A{number}"), partition=0)
    begin = rebuild._start_over

    def remove_and_begin(found):
        if broker is not None:
            broker.delete_records(topic, 0, 2)
        else:
            with closing(client.new_admin()) as admin:
                admin.delete_records({client.TopicPartition(topic, 0): 2})
        begin(found)

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "_start_over", remove_and_begin)
        with pytest.raises(CommandError, match=f"^{topic}/0: records were removed before they were read$"):
            call_command("rebuild_buffer")
    assert rebuild.is_under_way(stream.name), "so that nothing is due"
    assert not Bucket.objects.exclude(due_at=None).exists()
    call_command("rebuild_buffer")
    assert sorted(BufferedEvent.objects.values_list("order_id", flat=True)) == ["A2", "A3", "A4"]
    assert not rebuild.is_under_way(stream.name)
