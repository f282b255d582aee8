"""bill FIRST COUNT [--die POINT]: make invoices, roll every third one back, and relay what was promised."""

import os
import signal

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import transaction
from spillway_client import publish, relay
from spillway_client.models import Promise
from spillway_client.producer import Producer

from notifications.models import Invoice


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("first", type=int)
        parser.add_argument("count", type=int)
        parser.add_argument("--die", choices=["sending", "sent", "noted"], help="by SIGKILL, while the relay does so")

    def handle(self, first, count, die, **options):
        for number in range(first, first + count):
            try:
                issue(number)
            except Undecided:
                continue
        Promise.objects.update(lease_until=0)  # of whoever died before: nobody waits for it
        if die:
            {"sending": die_sending, "sent": die_sent, "noted": die_noted}[die]()
        call_command("relay_promises", once=True)


class Undecided(Exception):
    """Somebody thought better of it."""


def issue(number):
    """An invoice and its reminder: two messages of one aggregate."""
    with transaction.atomic():
        invoice = Invoice.objects.create(number=number)
        promise(number, "issued")
        invoice.reminded = True
        invoice.save()
        promise(number, "reminded")
        promise(number, "issued")  # again: nothing
        if number % 3 == 2:
            raise Undecided


def promise(number, event):
    mail = {"to": f"ada{number}@example.com", "subject": f"Invoice {number} {event}", "text": f"ä€𝄞 {number}\n"}
    publish(f"invoice.{event}", f"invoice:{number}", mail, idempotency_key=f"{number}/{event}")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_sending():
    """The third record is handed over, nothing is confirmed."""
    begin, calls = Producer._begin, []

    def begun(self, *args):
        future = begin(self, *args)
        calls.append(future)
        if len(calls) == 3:
            die()
        return future

    Producer._begin = begun


def die_sent():
    """All is confirmed, nothing noted."""
    relay.note = lambda *_: die()


def die_noted():
    """Noted, and not committed."""
    note = relay.note

    def noted(*args):
        with transaction.atomic():
            note(*args)
            die()

    relay.note = noted
