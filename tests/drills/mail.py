"""Drills about the mail provider: nobody answers, and every recipient is refused."""

from __future__ import annotations

from tests.crash.wire import wait_for
from tests.drills.stage import Drill, Stage

RELAYING_DENIED = "550 5.7.1 relaying denied"
RESUME = (
    "from config.admin.levers import Operator; from outbox.channels import admission; "
    "print(admission.resume('email', Operator('drill'), 'the provider takes our mails again'))"
)


class ProviderDown(Drill):
    """The breaker opens, and closes by itself as soon as the provider answers a probe."""

    alert = "SpillwayBreakerOpen"
    staged = "the mail server is gone; nobody listens on its port"

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.sink.accepted, 60, "the first mail")
        stage.close_mail_server()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the provider is back")
        stage.open_mail_server()
        wait_for(lambda: stage.sink.accepted, 120, "mails again, by themselves")


class ChannelPaused(Drill):
    """Ten recipients in a row are refused alike: Spillway pauses the channel, a person resumes it."""

    alert = "SpillwayChannelPaused"
    staged = f'the mail server refuses every recipient: "{RELAYING_DENIED}"'

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.sink.accepted, 60, "the first mail")
        stage.sink.refuse = lambda recipient: RELAYING_DENIED

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("dead_letters", "list", "--source", "outbox")
        stage.say("the provider takes our mails again; Channels, email, Resume")
        stage.sink.refuse = lambda recipient: ""
        stage.platform.manage("shell", "-c", RESUME)
        wait_for(lambda: "No open" in stage.manage("dead_letters", "list", "--source", "outbox"), 120,
                 "the letters of the refusals to be requeued", 5)  # fmt: skip
