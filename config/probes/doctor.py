"""`doctor`: one line for each thing that Spillway needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections
from django.utils.text import Truncator

from config import replica
from config.causes import BROKER, DATABASE, REGISTRY, UNKNOWN_OF_BROKER, UNKNOWN_OF_DATABASE, Fact, causes_first, fact
from config.database import galera
from config.database.clock import compared_clocks, database_now
from config.database.tables import ONLY_READS, missing_apps, missing_migrations, only_reads, require_tables
from config.environment.extensions import added_by, extensions, release_of
from config.flows import flows
from config.formats import REGISTERED, formatted
from config.formats.registry import RegistryUnavailable, registry
from config.kafka.client import (
    NO_TRANSACTIONS,
    KafkaError,
    controller_skew,
    in_one_line,
    new_admin,
    silent_brokers,
    transactions_supported,
)
from config.kafka.topics import TopicState, describe_topics
from config.openid import ProviderUnavailable
from config.openid.provider import provider
from config.partitions import configured, days_left
from config.partitions.rotation import kept_ahead
from config.telemetry.redaction import one_line

MOST_SKEW = 2.0
MOST_OF_FOLLOWING = 100  # characters: the cause says the rest
NOT_KNOWN = "not known while that does not answer"
# What nobody can look at without it.
ASKED = [
    (fact(DATABASE), fact(UNKNOWN_OF_DATABASE), "clock"),
    (fact(DATABASE), fact(UNKNOWN_OF_DATABASE), "flows"),
    (fact(BROKER), fact(UNKNOWN_OF_BROKER), "transactions"),
    (fact(BROKER), fact(UNKNOWN_OF_BROKER), "topics"),
]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is right, and what was seen or has to be done."""

    name: str
    ok: bool
    detail: str
    fact: Fact | None = None


def examine() -> list[Finding]:
    """Look at everything; a thing that cannot be looked at is a finding, never an exception."""
    findings = [_settings(), *_extensions()]
    database = _guarded("database", _database)
    findings += database
    if all(finding.ok for finding in database):
        looks = {
            "extensions": _missing_apps,
            "replica": _replica,
            "clock": _clock,
            "galera": _galera,
            "partitions": _partitions,
            "flows": _flows,
        }
        findings += [finding for name, look in looks.items() for finding in _guarded(name, look)]
    findings += _guarded("broker", _broker)
    findings += [*_registry(), *_sign_in()]
    away = {finding.fact for finding in findings}
    return [*findings, *(Finding(name, False, NOT_KNOWN, known) for cause, known, name in ASKED if cause in away)]


def render(findings: list[Finding], *, as_json: bool) -> str:
    """What follows from something stands under it, and is no FAIL of its own."""
    causes = causes_first(findings)
    if as_json:
        shown: list[dict[str, object]] = []
        for cause, following in causes:
            shown.append({"name": cause.name, "ok": cause.ok, "detail": cause.detail})
            shown += [
                {"name": effect.name, "ok": effect.ok, "detail": effect.detail, "follows_from": cause.name}
                for effect in following
            ]
        return json.dumps({"ok": all(finding.ok for finding in findings), "findings": shown})
    lines = []
    for cause, following in causes:
        lines.append(f"{'ok  ' if cause.ok else 'FAIL'}  {cause.name:28} {cause.detail}")
        lines += [
            f"      └ {effect.name:26} {Truncator(effect.detail).chars(MOST_OF_FOLLOWING)}" for effect in following
        ]
    return "\n".join(lines)


def _guarded(name: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of `look`; an error ends it, and is the last of them."""
    findings: list[Finding] = []
    try:
        findings.extend(look())
    except (DatabaseError, InterfaceError) as error:
        findings.append(Finding(name, False, f"DATABASE_URL ({_where()}): {one_line(error)}", fact(DATABASE)))
    except KafkaError as error:
        findings.append(Finding(name, False, in_one_line(error), fact(BROKER)))
    return findings


def _settings() -> Finding:
    problems = [message for message in checks.run_checks() if message.is_serious(checks.ERROR)]
    return Finding(
        "settings", not problems, "; ".join(str(problem.msg) for problem in problems) or "no system check fails"
    )


def _extensions() -> Iterator[Finding]:
    for app in extensions():
        adds = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in added_by(app))
        yield Finding(f"extension {app.label}", True, f"{release_of(app)} adds {adds or 'nothing'}")


def _missing_apps() -> Iterator[Finding]:
    if said := missing_apps():
        yield Finding("extensions", True, said)


def _registry() -> list[Finding]:
    if not any(entry["FORMAT"] in REGISTERED for entry in formatted().values()):
        return []
    try:
        return [Finding("schema registry", True, registry().look())]
    except RegistryUnavailable as error:
        return [Finding("schema registry", False, f"{error}; records wait, none is lost", fact(REGISTRY))]


def _sign_in() -> Iterator[Finding]:
    if settings.OIDC_ISSUER:
        try:
            yield Finding("identity provider", True, provider().look())
        except ProviderUnavailable as error:
            yield Finding("identity provider", False, f"{error}; nobody can log in there")


def _database() -> Iterator[Finding]:
    problems = [str(problem.msg) for problem in checks.run_checks(tags=[checks.Tags.database], databases=["default"])]
    yield Finding(
        "database session", not problems, "; ".join(problems) or "isolation, zone, text and collations are right"
    )
    started = time.perf_counter()
    database_now()
    took = (time.perf_counter() - started) * 1000
    version = getattr(connection, "mysql_server_info", "") or getattr(connection, "pg_version", "")
    answers = f"{connection.display_name} {version} at {_where()} answers in {took:.1f} ms"
    yield Finding("database", not (reads := only_reads()), f"{answers}; {ONLY_READS}" if reads else answers)
    missing = missing_migrations()
    yield Finding("migrations", not missing, missing or "all applied")


def _replica() -> Iterator[Finding]:
    if not replica.configured():
        return
    usable, most = replica.usable(), settings.REPLICA_MAX_LAG_SECONDS
    use = "lists and gauges are read there" if usable else f"until it is within {most} s the primary answers"
    found = f"REPLICA_URL ({_where(replica.REPLICA)}): {replica.lag.in_words()}"
    try:
        if usable:
            require_tables(replica.REPLICA)
    except (DatabaseError, InterfaceError) as error:
        usable, use = False, f"its tables are not those of the primary, which answers instead ({one_line(error)})"
    yield Finding("replica", usable, f"{found}; {use}")


def _clock() -> Iterator[Finding]:
    skew = abs(compared_clocks()[1])
    yield Finding("clock", skew < MOST_SKEW, f"this machine and the database differ by {skew:.2f} s")


def _galera() -> Iterator[Finding]:
    if (looks := galera.watched(connection)) is None:
        return
    before, node = looks
    yield Finding("galera node", not node.trouble, node.trouble or f"{node.name} is synced")
    spare = "one may die" if node.size >= galera.LEAST else "if another one dies, nothing is written: start a third"
    yield Finding("galera cluster", node.size >= galera.LEAST, f"{node.size} nodes, of which this one is: {spare}")
    others = node.why_not_alone(before)
    yield Finding("galera writers", not others, others or f"nothing is written to another node than {node.name}")


def _partitions() -> Iterator[Finding]:
    if connection.vendor == "sqlite":
        yield Finding("partitions", True, "SQLite has none: rotation deletes instead")
        return
    kept = kept_ahead()
    for spec in configured():
        days, enough = days_left(spec), kept[spec.resolve()._meta.db_table] / 3
        yield Finding(f"partitions of {spec.model}", days >= enough, f"made for {days:.0f} more days")


def _flows() -> Iterator[Finding]:
    for flow in flows():
        for line in flow.diagnose():
            yield Finding(*line, getattr(line, "fact", None))


def _broker() -> Iterator[Finding]:
    with closing(new_admin()) as admin:
        silent, brokers = silent_brokers(admin)
        yield _brokers(silent, brokers)
        if 2 * len(silent) >= brokers:
            return  # what the others tell of topics may be old
        topics = describe_topics(admin)
        yield _transactions(transactions_supported(admin))
        yield _broker_clock(controller_skew(admin))
    for topic in topics:
        yield from _topic(topic)


def _brokers(silent: list[str], brokers: int) -> Finding:
    if not silent:
        return Finding("broker", True, f"{','.join(settings.KAFKA_BOOTSTRAP_SERVERS)} answers")
    lost = "without a majority nothing is decided or acknowledged, and what is left tells only what it remembers"
    words = lost if 2 * len(silent) >= brokers else "the others go on"
    verb = "does" if len(silent) == 1 else "do"
    return Finding(
        "broker", False, f"{len(silent)} of {brokers} brokers {verb} not answer ({', '.join(silent)}): {words}"
    )


def _transactions(supported: bool) -> Finding:
    if not settings.KAFKA_TRANSACTIONS:
        return Finding("transactions", True, "KAFKA_TRANSACTIONS=off: the throttler is at-least-once, and one process")
    return Finding("transactions", supported, "offsets are checked against the group" if supported else NO_TRANSACTIONS)


def _broker_clock(skew: timedelta | None) -> Finding:
    if skew is None:
        return Finding("broker clock", True, "cannot tell: the broker does not describe its controllers")
    seconds = abs(skew.total_seconds())
    return Finding(
        "broker clock", seconds < MOST_SKEW, f"this machine and Kafka's controller differ by {seconds:.2f} s"
    )


def _topic(topic: TopicState) -> Iterator[Finding]:
    for verdict in topic.verdicts:
        yield Finding(f"topic {topic.name}", False, verdict)
    if not topic.verdicts:
        facts = ["present", str(topic.copies or ""), f"configuration {topic.untold}" if topic.untold else ""]
        yield Finding(f"topic {topic.name}", True, "; ".join(filter(None, facts)))


def _where(alias: str = DEFAULT_DB_ALIAS) -> str:
    config = connections[alias].settings_dict
    return f"{config['HOST']}:{config['PORT']}/{config['NAME']}" if config["HOST"] else str(config["NAME"])
