"""`--flow outage`: half an hour without the provider on an accelerated clock, and what it has cost in the end."""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from outbox.channels import handlers
from tests.crash import databases
from tests.crash.oracle import Finding, each_once
from tests.crash.platform import Platform, Worker
from tests.crash.run import Outcome, Plan, directory, everything_adds_up, staged, until_nothing_is_left
from tests.crash.wire import wait_for

CHANNEL = "provider"
EVENTS = 167  # published in a second
RATE = 400.0  # accepted in a second; all of these are seconds of the accelerated clock
BURST = 0.1 * RATE  # a full bucket of the channel: what it may send in a tenth of a second
FAST, SLOW = 10.0, 2.0  # its speed without the provider, and with it: no machine sends 4 000 in a real second
RELAYS, WINDOW, TRANSACTION = 2, 20, 200
STUCK = 120.0
VARIABLE = "OUTAGE_CLOCK"
SETTINGS = {"LOG_LEVEL": "WARNING", "DJANGO_SETTINGS_MODULE": "config.settings"}
MESSAGES = "SELECT id, state, attempts, times_uncertain FROM outbox_outboxmessage"
UNFINISHED = f"{MESSAGES} WHERE state IN ('pending', 'processing', 'uncertain') LIMIT 1"
COUNTED = f"{MESSAGES} WHERE attempts <> 0 AND state <> 'processing'"
TRAFFIC = "SELECT MIN(created_at), MAX(created_at) FROM outbox_outboxmessage"
LETTERS = "SELECT id, reason, business_key FROM outbox_deadletter"
NOW = {
    "postgresql": "SELECT to_timestamp({simulated}) FROM "
    "(SELECT extract(epoch FROM clock_timestamp())::float8 AS real_time) AS clock",
    "mysql": "SELECT TIMESTAMPADD(MICROSECOND, CAST(1e6 * ({simulated}) AS SIGNED), TIMESTAMP'1970-01-01 00:00:00') "
    "FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6 AS real_time) AS clock",
}


class Clock:
    """Simulated time: fast until the turn, the moment of real time (in a file) at which the provider comes back."""

    def __init__(self, variable: str) -> None:
        base, _, place = variable.partition(" ")
        self.base, self._turn = float(base), 0.0
        self.turn_file = Path(place) / "turn"

    @property
    def turn(self) -> float:
        """In the next century until somebody has written it down."""
        if not self._turn and self.turn_file.exists():
            self._turn = float(self.turn_file.read_text())
        return self._turn or 4e9

    def bring_back(self) -> None:
        """Name the turn, early enough for every process to read it before it comes."""
        draft = self.turn_file.with_suffix(".draft")
        draft.write_text(f"{time.time() + 0.5:.6f}")
        draft.rename(self.turn_file)

    @property
    def speed(self) -> float:
        return FAST if time.time() < self.turn else SLOW

    def now(self, real: float | None = None) -> float:
        """Seconds since 1970. The server runs on this host: its clock is ours."""
        real = time.time() if real is None else real
        return self.base + FAST * (min(real, self.turn) - self.base) + SLOW * max(0.0, real - self.turn)

    def get(self, vendor: str) -> str:
        """The same, asked of the server, in place of `NOW_SQL`; looked up each time: the turn is not known before."""
        base, turn = f"{self.base:.6f}", f"{self.turn:.6f}"
        simulated = f"{base} + {FAST} * (LEAST(real_time, {turn}) - {base}) + {SLOW} * GREATEST(real_time - {turn}, 0)"
        return NOW[vendor].format(simulated=simulated)


class Provider(handlers.MessageHandler):
    """Not there until the turn, then it accepts everything; each call leaves a line behind."""

    window = WINDOW
    timeout = 1.0

    def __init__(self) -> None:
        self.clock = Clock(os.environ[VARIABLE])
        path = self.clock.turn_file.with_name(f"calls-{os.getpid()}.log")
        self.file = path.open("ab", buffering=0)

    def rate(self) -> float:
        return RATE

    def send(self, messages: Sequence[handlers.Message]) -> list[handlers.Outcome]:
        answer = handlers.Outcome("sent" if self.clock.speed == SLOW else "unreachable")
        for message in messages:
            self.file.write(f"{message.id.hex} {answer.kind} {self.clock.now():.6f}\n".encode())
        return [answer] * len(messages)


# -- the processes ------------------------------------------------------------------------------------
def main() -> None:
    """python -m tests.crash.outage relay … | publish EVENTS …: what the run starts, on the accelerated clock."""
    import django

    from config.database import clock

    django.setup()
    clock.NOW_SQL = mine = Clock(os.environ[VARIABLE])  # type: ignore[assignment]
    relay(mine, sys.argv[2:]) if sys.argv[1] == "relay" else publish(mine, int(sys.argv[2]))


def relay(clock: Clock, arguments: list[str]) -> None:
    """The command itself, with the handler of this file."""
    from django.conf import settings

    from outbox.management.commands.relay_outbox import Command

    class Relay(Command):
        def work(self, stop: Any, options: dict[str, Any]) -> None:
            wait = stop.wait
            # Its pauses are as much shorter as its clock is faster.
            stop.wait = lambda seconds: wait(seconds / clock.speed)
            super().work(stop, options)

    settings.HANDLERS = {CHANNEL: f"tests.crash.outage.{Provider.__name__}"}
    Relay().run_from_argv(["manage.py", "relay_outbox", "--channel", CHANNEL, *arguments])


def publish(clock: Clock, total: int) -> None:
    """So many events, EVENTS in a second of the clock; three of an order, far from each other."""
    began = clock.now()
    for start in range(0, total, TRANSACTION):
        numbers = range(start, min(start + TRANSACTION, total))
        promise([(n, f"order:{n % (total // 3 + 1)}") for n in numbers])
        time.sleep(max(0.0, began + numbers.stop / EVENTS - clock.now()) / FAST)


def promise(events: Sequence[tuple[int, str]]) -> None:
    """What `publish` writes for each of them, in two statements for all."""
    from django.db import transaction

    from config.database.clock import database_now
    from config.database.upsert import Upsert, uuid_text
    from config.fields import uuid7
    from outbox.messages import notify
    from outbox.messages.publish import SCOPE, content_hash
    from outbox.models import IdempotencyKey
    from tests.outbox import bulk

    keys = Upsert(
        IdempotencyKey, "key payload_hash message_id", "", {},
        "scope answer token created_at",
    )  # fmt: skip
    rows = [(uuid_text(uuid7()), CHANNEL, "order.paid", order, f'{{"n":{n}}}', "", "") for n, order in events]
    with transaction.atomic():
        now = database_now()
        keys.run([(row[4], content_hash(*row[1:5]), row[0]) for row in rows],
                 {"scope": SCOPE, "answer": "", "token": 0, "created_at": now})  # fmt: skip
        bulk.MESSAGES.run(rows, bulk.beginning(now))
        transaction.on_commit(notify.notify_relays)


# -- the run ------------------------------------------------------------------------------------------
def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """`plan.orders` are minutes. A database of its own; nothing is left behind."""
    if name == "sqlite":
        return Outcome([Finding("an accelerated clock", "", ["only a server has one to replace"])], {})
    with staged(url, plan.logs, SETTINGS) as platform, directory(None) as place:
        return Outage(platform, place, plan.orders, say).go()


@dataclass
class Outage:
    """Traffic without the provider, then the provider without traffic."""

    platform: Platform
    place: Path
    minutes: int
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.platform.environment[VARIABLE] = f"{time.time():.6f} {self.place}"
        self.clock = Clock(self.platform.environment[VARIABLE])
        self.total = self.minutes * 60 * EVENTS

    def go(self) -> Outcome:
        program, began = ["-m", "tests.crash.outage"], time.monotonic()
        relays = [self.platform.launch([*program, "relay"], f"relay-{n}", {}) for n in range(1, RELAYS + 1)]
        publisher = self.platform.launch([*program, "publish", str(self.total)], "publish", {})
        wait_for(lambda: self._sound(relays) and not publisher.alive, 3600, "the traffic", 0.2)
        counted = self._rows(COUNTED)
        self.clock.bring_back()
        self.say("all is published, the provider comes back")
        stuck = self._drain(relays)
        codes = {"publish": publisher.end(), **{relay.name: relay.stop() for relay in relays}}
        return self._outcome(stuck, counted, codes, time.monotonic() - began)

    def _sound(self, relays: Sequence[Worker]) -> bool:
        assert all(relay.alive for relay in relays), [relay.text[-1500:] for relay in relays]
        return True

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.platform.environment["DATABASE_URL"], statement)

    def _drain(self, relays: Sequence[Worker]) -> str:
        def left() -> dict[str, int]:
            calls = sum(path.stat().st_size for path in self.place.glob("calls-*.log"))
            return {"messages are unfinished, bytes of calls": calls} if self._rows(UNFINISHED) else {}

        return until_nothing_is_left(left, STUCK, lambda: self._sound(relays))

    # -- the end --------------------------------------------------------------------------------------
    def _outcome(self, stuck: str, counted: list[Any], codes: dict[str, int], took: float) -> Outcome:
        calls = [line.split() for path in self.place.glob("calls-*.log")
                 for line in path.read_text().splitlines()]  # fmt: skip
        sent = sorted((float(at), name) for name, kind, at in calls if kind == "sent")
        refused, times = len(calls) - len(sent), [at for at, _ in sent]
        messages = [(str(pk).replace("-", ""), *rest) for pk, *rest in self._rows(MESSAGES)]
        verify = self.platform.manage("verify", "--flow", "outbox", "--json", check=False)
        ((first, last),) = self._rows(TRAFFIC)
        began = first if first.tzinfo else first.replace(tzinfo=UTC)
        outage = self.clock.now(self.clock.turn) - began.timestamp()
        pace = (len(messages) - TRANSACTION) / (last - first).total_seconds()
        findings = [
            Finding("the traffic came", f"{pace:.0f} messages/s", [len(messages)] * (len(messages) != self.total)),
            once(messages, [name for _, name in sent]),
            Finding("no dead letters", "", self._rows(LETTERS)),
            Finding("no attempt is counted when the outage is over", f"after {outage / 60:.1f} minutes", counted),
            Finding("every message is sent with its first attempt, none was uncertain", "",
                    [row for row in messages if row[1:] != ("sent", 1, 0)]),
            few_calls(refused, outage),
            *[within_rate(times, seconds) for seconds in (1, 10)],
            *everything_adds_up(verify, codes, stuck, took),
        ]  # fmt: skip
        return Outcome(findings, self._figures(times, refused, outage))

    def _figures(self, times: Sequence[float], refused: int, outage: float) -> dict[str, Any]:
        turn = self.clock.now(self.clock.turn)
        first, last = (times[0], times[-1]) if times else (turn, turn)
        tenth = len(times) // 10
        steady = 8 * tenth / (times[9 * tenth] - times[tenth]) if tenth else 0.0
        return {
            "messages": self.total, "outage": f"{outage / 60:.1f} minutes, {outage / FAST:.0f} s real",
            "calls in vain": refused, "first success": f"{first - turn:.1f} s after the provider is back",
            "recovery": f"{last - turn:.0f} s ({(last - turn) / SLOW:.0f} s real); "
            f"at the rate alone it takes {self.total / RATE:.0f} s",
            "steady rate": f"{steady:.0f} of {RATE:.0f}/s ({steady / RATE:.0%}), {steady * SLOW:.0f}/s real",
            "busiest second": f"{busiest(times, 1)}; rate and burst are {RATE + BURST:.0f}",
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip


# -- the oracle ---------------------------------------------------------------------------------------
def once(messages: Sequence[tuple[Any, ...]], sent: Sequence[str]) -> Finding:
    wrong = each_once([name for name, *_ in messages], sent)
    return Finding("every message was sent exactly once", f"{len(sent)} of {len(messages)}", wrong)


def few_calls(refused: int, outage: float) -> Finding:
    """What each relay had on its way when the fifth failed, then after 5 s, 10 s, 20 s, 40 s, and each minute."""
    most = RELAYS * WINDOW + 10 + int(outage / 60)
    offenders = [] if 5 <= refused <= most else [refused]
    return Finding("without the provider only probes are made", f"{refused} calls, at most {most}", offenders)


def within_rate(times: Sequence[float], seconds: float) -> Finding:
    """Tokens are paid for at the claim: each relay may besides hold one full bucket that it has not sent yet."""
    most = RATE * seconds + (1 + RELAYS) * BURST
    found = busiest(times, seconds)
    offenders = [found] if found > most else []
    return Finding(f"in no {seconds:g} s more than the rate allows", f"{found}, at most {most:.0f}", offenders)


def busiest(times: Sequence[float], seconds: float) -> int:
    """The most in any window of so many seconds."""
    return max((bisect_right(times, at + seconds) - n for n, at in enumerate(times)), default=0)


if __name__ == "__main__":
    main()
