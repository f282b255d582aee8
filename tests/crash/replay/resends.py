"""`--flow resend`: sent mails are sent again by batches, whose workers, commands and relays are killed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.crash.killer import Kill
from tests.crash.mail.places import SMTP_TROUBLES
from tests.crash.mail.run import TIMINGS
from tests.crash.oracle import Finding
from tests.crash.platform import Platform, Worker
from tests.crash.replay import resend_oracle
from tests.crash.replay.deaths import Deaths
from tests.crash.replay.run import STUCK, BatchRun, chunk_of
from tests.crash.replay.victim import OF_MESSAGES
from tests.crash.run import Outcome, Plan, everything_adds_up, staged
from tests.crash.wire import wait_for
from tests.notifications.smtp_sink import Sink
from tests.prepared import run_python

SETTINGS = {**TIMINGS, "EMAIL_CHANNEL": "smtp", "EMAIL_WINDOW": "5", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
REASON = "the template was empty"
EVERYTHING = ("--since", "2020-01-01T00:00Z", "--event-type", "order.paid")
IN_TERMINAL = ("sent again", "settled", "committed")  # where a command dies that carries out its own batch
NAMED = 30  # messages that such a command names
TROUBLE = 0.05  # of the mails that are sent again
RECOVERY = 5.0  # seconds between two rounds of recovery


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A database and a mail server of its own; nothing is left behind."""
    with Sink(seed=plan.seed) as sink:
        environment = {
            **SETTINGS, "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}", "REPLAY_CHUNK": str(chunk_of(plan)),
        }  # fmt: skip
        with staged(url, plan.logs, environment) as platform:
            return Resends(platform, sink, plan, say, 1 if name == "sqlite" else 2).go()


class Resends(BatchRun):
    """`plan.orders` mails are sent; then asked for again in several ways, `workers` of each kind at a time."""

    def __init__(self, platform: Platform, sink: Sink, plan: Plan, say: Callable[[str], None], workers: int) -> None:
        super().__init__(platform, sink, plan, say)
        self.names = [f"relay-{number}" for number in range(1, workers + 1)]
        self.relays: dict[str, Worker] = {}
        self.kills: list[Kill] = []
        self.deaths = Deaths(platform, plan, workers, self.all_done, OF_MESSAGES, self._kill_a_relay)

    def go(self) -> Outcome:
        began = time.monotonic()
        firsts = self._send()
        self.say(f"{len(firsts)} mails are sent after {time.monotonic() - began:.0f} s")
        with self._relays():
            self._by_terminals()
            self.deaths.once("pinned", "resend_messages", *EVERYTHING, "--canary", "7", "--reason", REASON)
            self.deaths.at_boundaries(first=True)
            self.deaths.once("judged", "resend_messages", *EVERYTHING, "--reason", "I asked before, and it died")
            self.deaths.at_boundaries(first=False)
            self.deaths.inside()
            self.say(f"{self.deaths.told()}; {self.progress()}")
            stuck = self.drain(self._recovering())
            once_more = ["resend_messages", *EVERYTHING, "--reason", "once more", "--json"]
            asked_again = json.loads(self.platform.manage(*once_more, check=False).stdout.splitlines()[-1])
        return self._outcome(firsts, stuck, asked_again, time.monotonic() - began)

    # -- the mails, and who sends them -------------------------------------------------------------------
    def _send(self) -> dict[str, str]:
        """Message-IDs by recipient of what everybody has got, once."""
        number = str(self.plan.orders)
        run_python("-m", "tests.crash.replay.people", "buy", number, env=self.platform.environment).check_returncode()
        self.platform.manage("relay_outbox", "--channel", "email", "--until-idle", "3", EMAIL_WINDOW="20")
        firsts = {mail["to"]: mail["message_id"] for mail in self.sink.accepted}
        assert len(firsts) == len(self.sink.accepted) == self.plan.orders
        self.sink.accepted.clear()
        self.sink.trouble, self.sink.troubles = TROUBLE, SMTP_TROUBLES
        return firsts

    @contextmanager
    def _relays(self) -> Iterator[None]:
        for name in self.names:
            self._start(name)
        yield
        self.codes = {name: worker.stop(60) for name, worker in self.relays.items()}

    def _start(self, name: str) -> None:
        self.relays[name] = self.platform.start("relay_outbox", "--channel", "email", name=name)

    def _kill_a_relay(self) -> None:
        """The one whose turn it is, if it has claimed something in this life."""
        name = self.names[len(self.kills) % len(self.names)]
        worker = self.relays[name]
        if done := int(worker.count("outbox_claims_total")):
            time.sleep(self.random.random() / 2)
            self.kills.append(Kill(name, done, worker.kill()))
            self._start(name)

    # -- who asks ----------------------------------------------------------------------------------------
    def _by_terminals(self) -> None:
        """Some mails each by a command that dies while it carries out what it asked for; a worker ends that."""
        ids = [str(message_id) for (message_id,) in self.rows("SELECT id FROM outbox_outboxmessage ORDER BY id")]
        for number, place in enumerate(IN_TERMINAL):
            named = ids[number * NAMED : (number + 1) * NAMED]
            self.deaths.once(place, "resend_messages", *named, "--reason", REASON)
            worker = self.platform.start("replay_letters", name="replay")
            wait_for(self._none_before_the_end, STUCK, f"a worker to go on with what died at {place!r}", 0.5)
            worker.stop(60)

    def _none_before_the_end(self) -> bool:
        """Nothing is left to be asked for; proof may come later."""
        return not self.rows("SELECT id FROM outbox_replaybatch WHERE state NOT IN ('done', 'verifying')")

    def _recovering(self) -> Callable[[], None]:
        """Now and then; and relays are killed until each has died often enough."""
        recovered = time.monotonic()

        def meanwhile() -> None:
            nonlocal recovered
            if len(self.kills) < self.plan.kills * len(self.names):
                self._kill_a_relay()
            if time.monotonic() - recovered > RECOVERY:
                self.platform.manage("recover_claims")
                recovered = time.monotonic()

        return meanwhile

    # -- the end -----------------------------------------------------------------------------------------
    def _outcome(self, firsts: dict[str, str], stuck: str, asked_again: dict[str, object], took: float) -> Outcome:
        copies = [resend_oracle.copy_of(row) for row in self.rows(resend_oracle.COPIES)]
        seen = resend_oracle.Seen(
            firsts,
            list(self.sink.accepted),
            copies,
            self.batches(),
            self.rows(resend_oracle.ITEMS),
            dict(self.actions()),
        )
        verify = self.platform.manage("verify", "--json", check=False)
        lives = {name: [kill.done for kill in self.kills if kill.worker == name] for name in self.names}
        findings = [
            *resend_oracle.judge(seen),
            Finding("asked once more, nothing is sent", "", [asked_again] if asked_again["skipped"] < asked_again["pinned"] else []),
            self.deaths.finding(),
            Finding("relays were killed at work", f"claimed in the lives lost: {lives}", relays_spared(self.kills, self.names)),
            *everything_adds_up(verify, {**self.codes, **self.survived}, stuck, took),
        ]  # fmt: skip
        repeats = Counter(mail["message_id"] for mail in seen.accepted)
        figures = {
            "mails": len(firsts), "batches": len(seen.batches), "accepted again": len(seen.accepted),
            "repeats": len(seen.accepted) - len(repeats), "uncertain": sum(copy.uncertain > 0 for copy in seen.copies),
            "deaths": self.deaths.told(), "relays killed": len(self.kills), "load": round(os.getloadavg()[0], 1),
            "seconds": round(took, 1),
        }  # fmt: skip
        return Outcome(findings, figures)


def relays_spared(kills: Sequence[Kill], names: Sequence[str]) -> list[object]:
    """Those that never died, and ends other than by signal 9."""
    return [*(kill for kill in kills if kill.code != -9), *sorted({*names} - {kill.worker for kill in kills})]
