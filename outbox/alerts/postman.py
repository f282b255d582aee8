"""A program of its own: sends one notice by apprise, in a process that may reach and read next to nothing.

It is started by its path, without Django and without the environment of the worker. It reads a line of JSON, answers
`{"ready": …}` or `{"fault": …}`, and sends after a second line `go`: whoever started it writes down in between that it
is about to be sent. When that process is gone, no `go` comes, and nothing is sent.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# What reaches for the network, and where in its arguments the address stands.
CONNECTS = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "pty.spawn",
)
NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
READABLE = (
    sys.prefix,
    sys.base_prefix,
    "/usr/share",
    "/usr/lib/ssl",
    "/etc/ssl",
    "/etc/pki",
    "/etc/localtime",
    "/dev/null",
)
LONGEST = 300  # characters of a fault
# Parts of an address that are too common to be a secret.
COMMON = re.compile(r"\W+")


def is_inside(address: str) -> bool:
    """Whether an IP address, or the one that is wrapped in it, is anything but a public one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        wrapped: list[object] = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if any(ip in network for network in NAT64):
            wrapped = [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)]
        if inner := [str(one) for one in wrapped if one]:
            return any(map(is_inside, inner))
        if int(ip) >> 32 == 0:  # ::a.b.c.d, as it was once written
            return True
    return not ip.is_global or ip.is_multicast or ip.is_reserved


class Fence:
    """Lets this process connect to public addresses and to allowed ones, read its own libraries, and start nothing.

    It stands below every library: what is checked is the address of the very connection, so that neither a redirect
    nor a name that resolves to something else a second later leads around it.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self.names: set[str] = set()
        self.networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self.addresses: set[str] = set()  # what allowed names resolved to
        self.refusal = ""  # the first one
        self.closed = False
        self.readable = tuple(os.path.realpath(path) for path in (*READABLE, *_certificates()))
        for word in allowed:
            try:
                self.networks.append(ipaddress.ip_network(word.strip("[]"), strict=False))
            except ValueError:
                self.names.add(word.lower().rstrip("."))

    def close(self) -> None:
        """From now on, until the process ends."""
        resolve = socket.getaddrinfo

        def noting(host: Any, *arguments: Any, **options: Any) -> list[tuple[Any, ...]]:
            answers = resolve(host, *arguments, **options)
            if str(host).lower().rstrip(".") in self.names:
                self.addresses.update(str(answer[4][0]) for answer in answers)
            return answers

        socket.getaddrinfo = noting
        sys.addaudithook(self._look)
        self.closed = True

    def may_reach(self, address: str) -> bool:
        """Whether a connection to this IP address is allowed; no other kind of address is."""
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
            inside = is_inside(address)
        except ValueError:
            return False
        mapped = getattr(ip, "ipv4_mapped", None)
        known = any(one in network for one in (ip, mapped) if one for network in self.networks)
        return not inside or known or address in self.addresses

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.closed:
            return
        if event in CONNECTS:
            place = arguments[CONNECTS[event]]
            address = str(place[0]) if isinstance(place, tuple) else "a socket of this machine"
            if place is not None and not self.may_reach(address):
                self._refuse(f"it leads to {address}, which is inside this network")
        elif event in STARTS:
            self._refuse("it would start a program")
        elif event == "open" and not self._may_open(*arguments):
            self._refuse("it would read or write a file of this machine")

    def _may_open(self, path: Any, mode: object, flags: Any) -> bool:
        if isinstance(path, int):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return not (int(flags or 0) & WRITES) and any(
            real == one or real.startswith(f"{one}/") for one in self.readable
        )

    def _refuse(self, why: str) -> None:
        self.refusal = self.refusal or why
        raise PermissionError(why)


def _certificates() -> list[str]:
    return [
        os.environ[name] for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)
    ]


class Lines(logging.Handler):
    """What apprise says of a failure, last one last."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Answers:
    """What HTTP calls came to: `HTTP 500`; and whether one of them may have been heard without an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.unsure = False

    def watch(self) -> None:
        import requests

        send = requests.Session.send

        def watched(session: requests.Session, request: requests.PreparedRequest, **options: object) -> object:
            try:
                answer = send(session, request, **options)
            except (requests.exceptions.ConnectTimeout, requests.exceptions.SSLError):
                self.text = "nobody answers there"
                raise
            except requests.exceptions.ConnectionError as error:
                # Refused, or cut off with the request on its way?
                begun = "NewConnectionError" in repr(error) or "NameResolutionError" in repr(error)
                self.text, self.unsure = (
                    ("nobody answers there", self.unsure) if begun else ("the connection broke off", True)
                )
                raise
            except requests.exceptions.RequestException:
                self.text, self.unsure = "no answer in time", True
                raise
            self.text = f"HTTP {answer.status_code}" if answer.status_code >= 300 else ""
            return answer

        setattr(requests.Session, "send", watched)  # noqa: B010 (it is replaced for this process)


class Target:
    """A URL as apprise understands it."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        from apprise import Apprise, AppriseAsset

        self.fault = ""
        asset = AppriseAsset(
            async_mode=False, app_id="Spillway", app_desc="Spillway", http_redirects=False, storage_mode="memory"
        )
        self.apprise = Apprise(asset=asset)
        self.plugin: Any = Apprise.instantiate(order["url"], asset=asset, suppress_exceptions=True)
        if self.plugin is None:
            self.fault = "it is no address that can be notified: look at the examples"
            return
        names = {name for kind in (self.plugin.protocol, self.plugin.secure_protocol) if kind for name in _tuple(kind)}
        if not names & set(order["schemas"]):
            self.fault = f"{sorted(names)[0] if names else 'this'}:// is not in NOTIFY_SCHEMAS"
            return
        # What the URL may say otherwise: no second try of its own, no redirect, no endless wait.
        self.plugin.retry, self.plugin.redirects = 0, False
        self.plugin.socket_connect_timeout, self.plugin.socket_read_timeout = order["connect"], order["read"]
        self.apprise.add(self.plugin)

    @property
    def service(self) -> str:
        """`Slack`."""
        return str(self.plugin.service_name)

    @property
    def hosts(self) -> list[str]:
        """Those that the URL names; a token that stands in the place of a host is none."""
        named = [self.plugin.host] if any("{host}" in template for template in self.plugin.templates) else []
        return [str(host) for host in (*named, getattr(self.plugin, "smtp_host", "")) if host]

    def shown(self) -> str:
        """What may be shown of it: the service, and the host where the URL names one."""
        return f"{self.service} at {self.hosts[-1]}" if self.hosts else self.service


def warm_up() -> None:
    """Import what apprise is made of, which is much of everything, before the fence closes."""
    from apprise import Apprise

    Apprise.instantiate("json://localhost")


def _tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def fault_of_hosts(target: Target, fence: Fence) -> str:
    """Why the hosts of a URL are not to be reached; a name that is not known is met again when something is sent."""
    for host in target.hosts:
        try:
            answers = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        for address in (str(answer[4][0]) for answer in answers):
            if not fence.may_reach(address):
                place = f"{host} leads to {address}, which" if host.strip("[]") != address else address
                return f"{place} is inside this network, and NOTIFY_ALLOWED_HOSTS does not name it"
    return ""


def without_secrets(text: str, url: str) -> str:
    """A fault without any part of the URL that may be secret."""
    parts = sorted({part for part in COMMON.split(url) if len(part) >= 5}, key=len, reverse=True)
    for part in parts:
        text = text.replace(part, "•••")
    return " ".join(text.split())[:LONGEST]


def main() -> None:
    """One order from stdin, its answers to stdout."""
    answer_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = sys.stderr

    def answer(**words: object) -> None:
        answer_to.write(json.dumps(words) + "\n")
        answer_to.flush()

    order = json.loads(sys.stdin.readline() or "null")
    if order is None:
        return
    signal.alarm(int(order["seconds"]) + 1)  # also when nobody is left to end it
    logging.getLogger("apprise").setLevel(logging.WARNING)
    lines, answers, fence = Lines(), Answers(), Fence(order["allowed"])
    logging.getLogger("apprise").addHandler(lines)
    answers.watch()
    warm_up()
    fence.close()
    target = Target(order)
    if target.fault:
        answer(fault=target.fault)
        return
    if fault := fault_of_hosts(target, fence):
        answer(fault=fault)
        return
    answer(ready=target.shown())
    if order["only_look"] or sys.stdin.readline() != "go\n":
        return
    send(order, target, fence, answers, lines, answer)


def send(
    order: Mapping[str, Any], target: Target, fence: Fence, answers: Answers, lines: Lines, answer: Callable[..., None]
) -> None:
    """`{"sent": bool, "unsure": bool, "fault": str}`: unsure when it may have arrived without anybody saying so."""
    try:
        sent = bool(
            target.apprise.notify(
                body=order["body"],
                title=order["title"],
                notify_type=order["kind"],
                body_format="text",
                interpret_escapes=False,
            )
        )
    except Exception as error:  # noqa: BLE001 (a plugin's own mistake is a failure of this notice)
        sent, lines.lines = False, [*lines.lines, f"{type(error).__name__}"]
    fault = fence.refusal or answers.text or (lines.lines[-1] if lines.lines else "it was not accepted")
    unsure = not sent and answers.unsure and not fence.refusal
    answer(sent=sent, unsure=unsure, fault="" if sent else without_secrets(fault, order["url"]))


if __name__ == "__main__":
    main()
