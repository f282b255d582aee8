"""Sample traffic: how many samples got in, and what a call with a number says when some did not."""

from __future__ import annotations

import io
import threading
from itertools import count, repeat

import pytest
from django.core.management import CommandError, call_command

from config.demo import simulation
from config.flows import Sample, SampleAction
from config.kafka import Failed, Sent


class Broker:
    """Takes every record but each third."""

    refuses = True

    def send_all(self, records):
        return [Failed("away") if self.refuses and number % 3 == 2 else Sent(0, 0) for number, _ in enumerate(records)]

    def close(self):
        pass


class Traffic:
    name = "some"

    def samples(self, seed):
        yield SampleAction(lambda: None)
        yield from (Sample("topic", "key", str(number).encode()) for number in count())


@pytest.fixture
def broker(monkeypatch):
    found = Broker()
    monkeypatch.setattr(simulation, "Producer", lambda: found)
    monkeypatch.setattr(simulation, "flows", lambda: [Traffic()])
    return found


def simulate(**options):
    said = io.StringIO()
    call_command("simulate", flow="some", rate=10_000, stdout=said, **options)
    return said.getvalue()


@pytest.mark.django_db
def test_a_call_with_a_number_fails_when_samples_did_not_get_in(broker):
    with pytest.raises(CommandError, match="samples did not get in"):
        simulate(count=10)
    broker.refuses = False
    assert simulate(count=10) == "10 records sent\n"


@pytest.mark.parametrize("given", [("--rate", "0"), ("--rate", "-1"), ("--rate", "nan"), ("--count", "-1")])
def test_nonsense_is_misuse(given, capsys):
    with pytest.raises(CommandError, match="invalid"):
        call_command("simulate", *given)


@pytest.mark.django_db
def test_the_account_is_on_disk_as_it_goes(broker, monkeypatch, tmp_path):
    """Whoever is killed can say nothing any more."""
    kept, seen = tmp_path / "account.json", []
    monkeypatch.setattr(Broker, "refuses", False)
    send = broker.send_all
    monkeypatch.setattr(
        broker, "send_all", lambda records: seen.append(simulation.read_account(kept)) or send(records), raising=False
    )
    simulate(count=5000, account=kept)
    assert len(seen) == 2
    assert [(begun["some"], sent["some"]) for begun, sent in seen] == [(2499, 0), (5000, 2500)]
    assert simulation.read_account(kept) == ({"some": 5000}, {"some": 5000})


@pytest.mark.django_db
def test_a_simulation_that_is_started_again_goes_on(broker, monkeypatch, tmp_path):
    kept, sent = tmp_path / "account.json", []
    monkeypatch.setattr(Broker, "refuses", False)
    send = broker.send_all
    monkeypatch.setattr(broker, "send_all", lambda records: sent.extend(records) or send(records), raising=False)
    for _life in range(2):
        assert simulate(count=10, account=kept) == "10 records sent\n"
    assert [int(record.value) for record in sent] == list(range(19))
    assert simulation.read_account(kept)[1] == {"some": 20}


@pytest.mark.django_db
def test_told_to_stop_it_leaves_what_is_due_undone(broker, monkeypatch):
    """On a slow machine much is due: it was killed before it could say what it had sent."""
    stop, done = threading.Event(), []

    def run():
        done.append(1)
        if len(done) == 3:
            stop.set()

    monkeypatch.setattr(Traffic, "samples", lambda *_: repeat(SampleAction(run)))
    kept = simulation.Account()
    simulation.simulate(stop, "some", 10_000, None, 1, kept)
    assert len(done) == kept.sent.total() == kept.begun.total() == 3


@pytest.mark.django_db
def test_what_a_slow_machine_could_not_send_is_not_made_up_for(broker, monkeypatch):
    """A part is as large as ever, however late it comes."""
    clock, sizes, stop = count(step=100), [], threading.Event()
    monkeypatch.setattr(simulation.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(
        broker, "send_all", lambda records: sizes.append(len(records)) or [Sent(0, 0)] * len(records), raising=False
    )
    monkeypatch.setattr(Traffic, "samples", lambda *_: repeat(Sample("topic", "key", b"")))
    simulation.simulate(stop, "some", 100, 200, 1, simulation.Account())
    assert sizes == [25] * 8
