from datetime import timedelta
import pytest
from buffer.models import *
from buffer.flush import Flusher
from buffer.verify import checks
from outbox.models import *
from tests.conftest import order
pytestmark = pytest.mark.django_db

def test_flow(ingest, records, stream, producer):
    ingest(records(order("A1"), order("A2"), order("A1", items={"S1": 4}), b"{bad", order("A3", "WH-a"), order("A4", "WH-A"), order("A5","WH-á"), order("A6","WH-a "), order("A7", at="2001-01-01T00:00:00Z")))
    print(list(BufferedEvent.objects.values_list("order_id","location_id","status","revision","payload")))
    print(list(Bucket.objects.values_list("location_id","open_count","due_at")))
    assert Bucket.objects.count() == 5
    assert DeadLetter.objects.count() == 2
    # redelivery
    ingest(records(order("A1"), start=0))
    assert BufferedEvent.objects.get(order_id="A1").revision == 0
    ingest(records(order("A2", items={"S9":2})))
    assert BufferedEvent.objects.get(order_id="A2").revision == 1
    Bucket.objects.update(urged="manual", due_at="2020-01-01T00:00:00Z")
    f = Flusher([stream], producer)
    assert f.tick() == 5
    assert BufferedEvent.objects.filter(status="sent").count() == 6
    print(producer.values)
    ingest(records(order("A1", items={"S1": 9})))
    assert DeadLetter.objects.filter(reason="late_event").count() == 1
    ingest(records(order("A1", items={"S1": 9})))
    assert DeadLetter.objects.filter(reason="late_event").count() == 1
    for c in checks(["transfer-requests"]):
        print(c); assert c.ok, c
    from outbox.dead_letters import requeue, discard
    from outbox.audit import Operator
    l = DeadLetter.objects.get(reason="late_event")
    r = requeue([l.pk], Operator("t"), "x"); print(r)
    assert r.requeued == 1
    assert f.tick() == 1
    print(producer.values[-1], Batch.objects.get(supplement_of__isnull=False).status)
    l = DeadLetter.objects.get(reason="invalid_json")
    r = requeue([l.pk], Operator("t"), "x"); print(r)
    assert DeadLetter.objects.filter(reason="invalid_json").count() == 2
    for c in checks(["transfer-requests"]):
        assert c.ok, c
    print(OperatorAction.objects.values_list("verb","result"))
