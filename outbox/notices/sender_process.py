"""A program of its own: sends one notice by apprise, in a process that may reach and read next to nothing.

It is started by its path, without Django and without the environment of the worker. It reads a line of JSON, answers
`{"ready": …}` or `{"fault": …}`, and sends what a second line says: whoever started it writes down in between that it
is about to be sent. When that process is gone, no second line comes, and nothing is sent.
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
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

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
            address = str(place[0]) if isinstance(place, tuple) else ""
            if place is not None and not self.may_reach(address):
                # Never to which address: somebody would read from here what names inside resolve to.
                self._refuse(
                    f"it leads {'inside this network' if isinstance(place, tuple) else 'to a socket of this machine'}"
                )
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
    """What calls came to: `HTTP 500`; how many were accepted; whether one may have been heard without an answer.

    apprise says that it has sent what it never tried to send, so what counts is what a service said.
    """

    def __init__(self) -> None:
        self.text = ""
        self.unsure = False
        self.accepted = 0

    def watch(self) -> None:
        """From now on, until the process ends."""
        self._watch_http()
        self._watch_smtp()

    def _watch_smtp(self) -> None:
        import smtplib

        sendmail = smtplib.SMTP.sendmail

        def watched(smtp: smtplib.SMTP, *given: Any, **options: Any) -> object:
            try:
                refused = sendmail(smtp, *given, **options)
            except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused):
                raise
            except OSError:  # an answer that did not come: the mail may have been taken
                self.text, self.unsure = "the connection broke off", True
                raise
            self.accepted += 1
            return refused

        setattr(smtplib.SMTP, "sendmail", watched)  # noqa: B010 (it is replaced for this process)

    def _watch_http(self) -> None:
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
            self._note(answer)
            return answer

        setattr(requests.Session, "send", watched)  # noqa: B010 (it is replaced for this process)

    def _note(self, answer: Any) -> None:
        if answer.status_code >= 300:
            self.text = f"HTTP {answer.status_code}"
        elif _says_failure(answer):  # as Splunk does
            self.text = "the service says that it failed"
        else:
            self.text = ""
            self.accepted += 1


def _says_failure(answer: Any) -> bool:
    try:
        said = answer.json()
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("result") == "failure"


class Target:
    """A URL as apprise understands it; what is known of its service comes with the order (`services.py`)."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        from apprise import Apprise, AppriseAsset

        self.fault = ""
        self.incidents: tuple[str, str, str, dict[str, object]] | None = None
        asset = AppriseAsset(
            async_mode=False, app_id="Spillway", app_desc="Spillway", http_redirects=False, storage_mode="memory"
        )
        self.apprise = Apprise(asset=asset)
        self.plugin: Any = Apprise.instantiate(order["url"], asset=asset, suppress_exceptions=True)
        if self.plugin is None:
            self.fault = "it is no address that can be notified: one begins with https:// or another service://, look at the examples"
            return
        names = self._names(str(order["url"]))
        if not set(names) & {schema.lower() for schema in order["schemas"]}:
            self.fault = f"{names[0]}:// is not in NOTIFY_SCHEMAS"
            return
        self.incidents = next((order["incidents"][name] for name in sorted(names) if name in order["incidents"]), None)
        for name in sorted(set(names) & order["without_key"].keys()):
            mode, fault = order["without_key"][name]
            if getattr(self.plugin, "mode", "") == mode:
                self.fault = fault
                return
        # What the URL may say otherwise: no second try of its own, no redirect, no endless wait.
        self.plugin.retry, self.plugin.redirects = 0, False
        self.plugin.socket_connect_timeout, self.plugin.socket_read_timeout = order["connect"], order["read"]
        self.apprise.add(self.plugin)

    def _names(self, url: str) -> tuple[str, ...]:
        """The schema that a URL means, and other names of the very same: `json` is not `jsons`, and goes out in the clear."""
        plain, secure = _tuple(self.plugin.protocol), _tuple(self.plugin.secure_protocol)
        if plain and getattr(self.plugin, "secure_mode", "") == "insecure":  # mailtos://…?mode=insecure
            return plain
        schema = url.partition("://")[0].strip().lower()
        if schema not in (*plain, *secure):  # the service's own address: https://hooks.slack.com/…
            schema = str(self.plugin.url()).partition("://")[0]
        same = next((names for names in (plain, secure) if schema in names), ())
        return (schema, *same)

    @property
    def service(self) -> str:
        """`Slack`."""
        return str(self.plugin.service_name)

    @property
    def hosts(self) -> list[str]:
        """Those that the URL names; a token that stands in the place of a host is none."""
        named = [self.plugin.host] if any("{host}" in template for template in self.plugin.templates) else []
        return [str(host) for host in (*named, getattr(self.plugin, "smtp_host", "")) if host]

    def send(self, message: Mapping[str, Any]) -> bool:
        """What apprise says of a message; at a service that keeps incidents it is about the one of this key."""
        if self.incidents:
            key, goes_on, ends, more = self.incidents
            self.plugin.status = None  # of a URL for SIGNL4, where it would stand before the action
            for name, setting in {**more, key: message["key"], "action": ends if message["over"] else goes_on}.items():
                setattr(self.plugin, name, setting)
            if self.service == "Opsgenie":
                self.plugin.batch_size = self.plugin.default_batch_size  # one alert has one request
                if message["over"]:
                    return _close_at_opsgenie(self.plugin, message)
        told = self.apprise.notify(
            body=message["body"],
            title=message["title"],
            notify_type=message["kind"],
            body_format="text",
            interpret_escapes=False,
        )
        return bool(told)

    def shown(self) -> str:
        """What may be shown of it: the service, and the host where the URL names one."""
        return f"{self.service} at {self.hosts[-1]}" if self.hosts else self.service


def _close_at_opsgenie(plugin: Any, message: Mapping[str, Any]) -> bool:
    """apprise closes what this very process has opened, and is content when that is nothing."""
    import requests
    from apprise.plugins.opsgenie import OPSGENIE_API_LOOKUP

    answer = requests.post(
        f"{OPSGENIE_API_LOOKUP[plugin.region_name]}/{quote(message['key'], safe='')}/close",
        params={"identifierType": "alias"},
        json={"source": plugin.app_desc, "note": f"{message['title']}\n{message['body']}"},
        headers={"User-Agent": plugin.app_id, "Authorization": f"GenieKey {plugin.apikey}"},
        timeout=plugin.request_timeout,
        verify=plugin.verify_certificate,
        allow_redirects=False,
    )
    return answer.ok


def warm_up() -> None:
    """Import what apprise is made of, which is much of everything, before the fence closes."""
    from apprise import Apprise

    Apprise.instantiate("json://localhost")


def _tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def fault_of_hosts(target: Target, fence: Fence) -> str:
    """Why the hosts of a URL are not to be reached; a name that is not known is met again when something is sent."""
    for host in target.hosts:
        try:
            answers = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        if not all(fence.may_reach(str(answer[4][0])) for answer in answers):
            return f"{host} is inside this network, and NOTIFY_ALLOWED_HOSTS does not name it"
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
    answer(ready=target.shown(), keeps_incidents=target.incidents is not None)
    if not order["only_look"] and (line := sys.stdin.readline()):
        result = send(json.loads(line), target, fence, answers, lines)
        answer(**result | {"fault": without_secrets(result["fault"], order["url"])})


def send(message: Mapping[str, Any], target: Target, fence: Fence, answers: Answers, lines: Lines) -> dict[str, Any]:
    """`{"sent": bool, "unsure": bool, "fault": str}`: unsure when it may have arrived without anybody saying so."""
    try:
        told = target.send(message)
    except Exception as error:  # noqa: BLE001 (a plugin's own mistake is a failure of this notice)
        told, lines.lines = False, [*lines.lines, f"{type(error).__name__}"]
    sent = told and answers.accepted > 0
    said = [fence.refusal, answers.text, "no answer of the service was seen" if told else "", *lines.lines[-1:]]
    fault = next(filter(None, said), "it was not accepted")
    # Of several addressees of one URL some may have it.
    unsure = answers.unsure or (answers.accepted > 0 and len(target.plugin) > 1)
    return {"sent": sent, "unsure": not sent and unsure and not fence.refusal, "fault": "" if sent else fault}


if __name__ == "__main__":
    main()
