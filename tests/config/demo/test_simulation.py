"""Sample traffic: how many samples got in, and what a call with a number says when some did not."""

from __future__ import annotations

import io
from itertools import count

import pytest
from django.core.management import CommandError, call_command

from config.demo import simulation
from config.flows import Deed, Sample
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
        yield Deed(lambda: None)
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
