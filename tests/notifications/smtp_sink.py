"""A real SMTP server that keeps what it accepts, and misbehaves on request.

`python -m tests.notifications.smtp_sink --port 2525 --journal mails.jsonl --trouble 0.05 --seed 7`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

# What `--trouble` chooses from. `dot:drop` accepted it and says nothing; `dot:lose` did neither.
TROUBLES = ["mail:421", "mail:451", "rcpt:450", "data:drop", "dot:451", "dot:drop", "dot:lose", "dot:421"]
FEATURES = ["250-sink", "250-SIZE 1000000", "250 8BITMIME"]


class Sink:
    """`script` is a queue of `step:action[:seconds]`: step is connect, ehlo, auth, mail, rcpt, data or dot; action is
    a code to answer, `drop`, `lose` (dot only), `slow`, `babble` (a line that is no reply), or `ok`. The first entry waits for its step.
    """

    def __init__(self, port: int = 0, journal: Path | None = None, trouble: float = 0.0, seed: int = 0,
                 login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None,
                 encrypted: bool = False) -> None:  # fmt: skip
        self.port, self.journal, self.trouble = port, journal, trouble
        self.random = random.Random(seed)
        self.login = login
        self.refuse: Callable[[str], str] = lambda recipient: ""  # the whole reply to RCPT; empty accepts
        self.replies: dict[str, str] = {}  # the whole reply to a step, each time
        self.tls, self.encrypted = tls, encrypted  # `encrypted`: from the first byte, else STARTTLS is offered
        self.script: deque[str] = deque()
        self.accepted: list[dict[str, str]] = []
        self.troubles = TROUBLES
        self.happened: Counter[str] = Counter()
        self.connections = 0
        self.commands: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task] = set()
        self._ready = threading.Event()

    # -- life ------------------------------------------------------------------------------------------
    def __enter__(self) -> Sink:
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        at_once = self.tls if self.encrypted else None
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**22, ssl=at_once)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def counts(self) -> Counter[str]:
        """How often each Message-ID was accepted."""
        return Counter(mail["message_id"] for mail in self.accepted)

    # -- one connection --------------------------------------------------------------------------------
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        try:
            await Session(self, reader, writer).converse()
        except (OSError, asyncio.IncompleteReadError, Dropped, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def action(self, step: str) -> list[str]:
        """What to do at this step: `["450"]`, `["slow", "2"]`, or nothing."""
        if step == "mail" and not self.script and self.random.random() < self.trouble:
            self.script.append(self.random.choice(self.troubles))
        if self.script and self.script[0].split(":")[0] == step:
            self.happened[self.script[0]] += 1
            return self.script.popleft().split(":")[1:]
        return []

    def keep(self, data: bytes, recipients: list[str]) -> None:
        parsed = message_from_bytes(data)
        kept = {"message_id": parsed["Message-ID"] or "", "to": ",".join(recipients), "at": str(time.time()),
                "subject": parsed["Subject"] or ""}  # fmt: skip
        if self.journal:
            with self.journal.open("a") as file:
                file.write(json.dumps(kept) + "\n")
        self.accepted.append({**kept, "data": data.decode()})


class Dropped(Exception):
    """The connection is cut, without a word."""


class Session:
    """One client's conversation."""

    def __init__(self, sink: Sink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sink, self.reader, self.writer = sink, reader, writer
        self.recipients: list[str] = []

    async def converse(self) -> None:
        await self.answer("connect", "220 sink")
        while line := (await self.reader.readline()).decode(errors="backslashreplace").rstrip("\r\n"):
            self.sink.commands.append(line)
            verb, _, rest = line.partition(" ")
            handle = getattr(self, f"do_{verb.lower()}", None)
            await (handle(rest) if handle else self.say("502 unknown command"))

    async def say(self, text: str) -> None:
        self.writer.write(text.encode() + b"\r\n")
        await self.writer.drain()
        if text.startswith("421"):
            raise Dropped

    async def answer(self, step: str, good: str) -> bool:
        """Answer as scripted, else well; whether the step went well."""
        if words := self.sink.replies.get(step):
            await self.say(words)
            return False
        action = self.sink.action(step)
        if action[:1] == ["drop"]:
            raise Dropped
        if action[:1] == ["slow"]:
            await asyncio.sleep(float(action[1]))
        if action and (action[0].isdigit() or action[0] == "babble"):
            await self.say(f"{action[0]} as scripted")
            return False
        await self.say(good)
        return True

    async def do_ehlo(self, _: str) -> None:
        more = ["250-AUTH PLAIN"] if self.sink.login else []
        more += ["250-STARTTLS"] if self.sink.tls and not self.sink.encrypted else []
        await self.answer("ehlo", "\r\n".join([*FEATURES[:2], *more, FEATURES[2]]))

    async def do_starttls(self, _: str) -> None:
        await self.say("220 go ahead")
        await self.writer.start_tls(self.sink.tls)

    async def do_auth(self, rest: str) -> None:
        import base64

        given = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")[1:]
        good = tuple(given) == self.sink.login
        await self.answer("auth", "235 welcome" if good else "535 5.7.8 no such user or password")

    async def do_mail(self, _: str) -> None:
        self.recipients = []
        await self.answer("mail", "250 sender ok")

    async def do_rcpt(self, rest: str) -> None:
        recipient = re.sub(r"^TO:<|>$", "", rest, flags=re.IGNORECASE)
        if words := self.sink.refuse(recipient):
            await self.say(words)
        elif await self.answer("rcpt", "250 recipient ok"):
            self.recipients.append(recipient)

    async def do_data(self, _: str) -> None:
        action = self.sink.script[0] if self.sink.script else ""
        if action == "data:hangup":
            self.sink.script.popleft()
            await self.say("354 go ahead")
            raise Dropped
        if not await self.answer("data", "354 go ahead"):
            return
        lines = []
        while (line := await self.reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line[1:] if line.startswith(b".") else line)
        await self.finish(b"".join(lines))

    async def finish(self, data: bytes) -> None:
        if words := self.sink.replies.get("dot"):
            return await self.say(words)
        action = self.sink.action("dot")
        if action[:1] == ["lose"]:
            raise Dropped
        if action and (action[0].isdigit() or action[0] == "babble"):
            return await self.say(f"{action[0]} as scripted")
        self.sink.keep(data, self.recipients)
        if action[:1] == ["drop"]:
            raise Dropped
        if action[:1] == ["slow"]:
            await asyncio.sleep(float(action[1]))
        await self.say(f"250 queued as {len(self.sink.accepted)}")

    async def do_rset(self, _: str) -> None:
        await self.say("250 forgotten")

    async def do_noop(self, _: str) -> None:
        await self.say("250 here")

    async def do_quit(self, _: str) -> None:
        await self.say("221 bye")
        raise Dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=2525)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--trouble", type=float, default=0.0, help="share of mails that something happens to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--script", default="", help="what happens to the first mails: rcpt:450,dot:drop")
    given = parser.parse_args()
    with Sink(given.port, given.journal, given.trouble, given.seed) as sink:
        sink.script.extend(filter(None, given.script.split(",")))
        print(f"smtp://127.0.0.1:{sink.port}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
