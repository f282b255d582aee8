"""Drills about mail: nobody answers, recipients are refused, a paused channel holds up what was requeued, events of the provider."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
import uuid

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.drills.stage import AgedRows, Drill, Stage

RELAYING_DENIED = "550 5.7.1 relaying denied"
LEVER = (
    "from config.admin.levers import Operator; from outbox.channels import permits; "
    "print(permits.{}('email', Operator('drill'), 'what the provider says'))"
)
# The command would wait for the proof that the first letters had an effect.
REQUEUE = (
    "from config.admin.levers import Operator; from outbox.letters import levers; from outbox.letters.models import DeadLetter; "
    "ids = list(DeadLetter.objects.filter(status='open').values_list('pk', flat=True)); "
    "print(levers.pull('requeue', ids, Operator('drill'), 'the provider knows them again'))"
)
RESUME, PAUSE = LEVER.format("resume"), LEVER.format("pause")
TAKEN = 204  # the answer to an event that is stored
NO_SUCH_USER = "550 5.1.1 no such user"
AN_HOUR_AGO = "UPDATE outbox_deadletter SET requeued_at = requeued_at - INTERVAL '61' MINUTE WHERE status = 'requeued'"
TOLD_AN_HOUR_AGO = "UPDATE notifications_webhookevent SET received_at = received_at - INTERVAL '61' MINUTE"
SECRET = "a-secret-of-the-drill"


class ProviderDown(Drill):
    """The breaker opens, and closes by itself as soon as the provider answers a probe."""

    alerts = ("SpillwayBreakerOpen",)
    staged = "the mail server is gone; nobody listens on its port"

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        stage.close_mail_server()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the provider is back")
        stage.open_mail_server()
        wait_for(lambda: stage.sink.accepted, 120, "mails again, by themselves")


class ChannelPaused(Drill):
    """Ten recipients in a row are refused alike: Spillway pauses the channel, a person resumes it."""

    alerts = ("SpillwayChannelPaused",)
    staged = f'the mail server refuses every recipient: "{RELAYING_DENIED}"'

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        stage.sink.refuse = lambda recipient: RELAYING_DENIED

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("dead_letters", "list", "--source", "outbox")
        stage.say("the provider takes our mails again; Channels, email, Resume")
        stage.sink.refuse = lambda recipient: ""
        stage.platform.manage("shell", "-c", RESUME)
        wait_for(lambda: "No open" in stage.manage("dead_letters", "list", "--source", "outbox"), 120,
                 "the letters of the refusals to be requeued", 5)  # fmt: skip


class RecipientsRefused(Drill):
    """Never ten in a row, so that nobody pauses the channel; the letters are requeued when the provider knows its users again."""

    alerts = ("SpillwaySendsFailing", "SpillwayRefusalBurst")
    staged = f'the mail server refuses two recipients of three: "{NO_SUCH_USER}"'

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        turn = itertools.count()
        stage.sink.refuse = lambda recipient: NO_SUCH_USER if next(turn) % 3 else ""

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("dead_letters", "list", "--source", "outbox")
        stage.say("the provider has its list of users again")
        stage.sink.refuse = lambda recipient: ""
        stage.manage("dead_letters", "requeue", "--source", "outbox", "--reason", "the provider knows them again")


class RequeuedInVain(AgedRows):
    """An hour is not waited for: the rows say that it has passed."""

    alerts = ("SpillwayDeadLettersWithoutEffect",)
    staged = "letters were requeued an hour ago (their rows are aged) while their channel is paused"
    workers = (("relay_outbox",), ("beat",))

    def fail(self, stage: Stage) -> None:
        turn = itertools.count()
        stage.sink.refuse = lambda recipient: NO_SUCH_USER if next(turn) % 3 else ""
        wait_for(lambda: "No open" not in stage.platform.manage("dead_letters", "list").stdout, 120, "a letter", 2)
        stage.sink.refuse = lambda recipient: ""
        stage.platform.manage("shell", "-c", PAUSE)
        stage.say("Requeue, on the page of each letter")
        stage.platform.manage("shell", "-c", REQUEUE)
        databases.run(stage.environment["DATABASE_URL"], AN_HOUR_AGO)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the channel is paused; Channels, email, Resume")
        stage.platform.manage("shell", "-c", RESUME)


class WebhooksUnapplied(AgedRows):
    """Beat, which applies what waits, gives up an event about a mail that nobody knows. Its hour is not waited for."""

    alerts = ("SpillwayWebhooksOpen",)
    staged = (
        "the provider told an hour ago (the row is aged) of a mail that is another program's, and beat does not run"
    )
    settings = {"EMAIL_WEBHOOK_SECRETS": f"generic:{SECRET}"}
    workers = (("relay_outbox",), ("beat",))

    def fail(self, stage: Stage) -> None:
        stage.living["beat"].stop()
        assert told(stage) == TAKEN, "the event is refused"
        databases.run(stage.environment["DATABASE_URL"], TOLD_AN_HOUR_AGO)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.start_again("beat")


class WebhooksForged(Drill):
    """The secret at the provider is another one than that of web: the provider repeats what was refused."""

    alerts = ("SpillwayWebhooksRejected",)
    staged = "the provider signs with a new secret that web does not know"
    settings = {"EMAIL_WEBHOOK_SECRETS": f"generic:{SECRET}"}

    def fail(self, stage: Stage) -> None:
        self.taken = threading.Event()

        def repeat() -> None:
            until = time.monotonic() + 3600
            while time.monotonic() < until and told(stage, f"{SECRET}-new") != TAKEN:
                time.sleep(5)
            self.taken.set()

        threading.Thread(target=repeat, daemon=True).start()

    def mend(self, stage: Stage) -> None:
        stage.say("the new secret stands in EMAIL_WEBHOOK_SECRETS beside the old; web is restarted")
        stage.environment["EMAIL_WEBHOOK_SECRETS"] = f"generic:{SECRET}-new,generic:{SECRET}"
        stage.living["web"].stop()
        stage.start_web()
        assert self.taken.wait(120), "the provider's event is still refused"
        stage.say("the event that the provider repeats is taken")


def told(stage: Stage, secret: str = SECRET) -> int:
    """The answer to an event of the provider about a mail; 0 where nobody answers."""
    event = {"id": str(uuid.uuid4()), "event": "delivered", "occurred_at": time.time(), "message_id": str(uuid.uuid4())}
    body, stamp = json.dumps(event).encode(), str(int(time.time()))
    signature = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"X-Spillway-Timestamp": stamp, "X-Spillway-Signature": signature, "Content-Type": "application/json"}
    address = f"http://127.0.0.1:{stage.site.port}/webhooks/email/generic"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
