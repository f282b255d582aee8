"""System checks of this app: a store in which messages would be lost, and rates that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError

from config.environment.databases import CassandraPlace
from config.environment.env import BadSetting
from throttler.customers.changes import longest_ttl
from throttler.limits.rate import default_rates, output_rate
from throttler.models import Customer

DAY_SECONDS = 86_400


@register(Tags.compatibility)
def cassandra_can_be_used(app_configs: object, **_: object) -> list[CheckMessage]:
    """The driver is there, a row outlives its message, and a read finds what was written."""
    return [*_settings(settings.CASSANDRA)] if settings.CASSANDRA else []


def _settings(place: CassandraPlace) -> Iterator[CheckMessage]:
    if find_spec("cassandra") is None:
        yield Error("THROTTLER_STORE=cassandra: the extra cassandra is not installed.", id="spillway.E050")
    # Rows leave by themselves: a message that expired behind a long outage must still be there to be reported.
    days, longest = settings.THROTTLER_BUFFER_DAYS, settings.THROTTLER_TTL_SECONDS
    if days * DAY_SECONDS <= longest + DAY_SECONDS:
        yield Error(
            f"THROTTLER_BUFFER_DAYS={days}: a row in Cassandra must outlive the longest message "
            f"(THROTTLER_TTL_SECONDS={longest}) by more than a day.",
            id="spillway.E051",
        )
    if not place.reads_what_it_wrote:
        yield Error(
            f"CASSANDRA_URL: with consistency={place.consistency} and replication={place.replication} a read may miss "
            "what was just stored; use LOCAL_QUORUM.",
            id="spillway.E052",
        )
    if place.cafile and not Path(place.cafile).is_file():
        yield Error(f"CASSANDRA_URL: there is no file {place.cafile} (cafile).", id="spillway.E053")


@register(Tags.compatibility)
def rates_make_sense(app_configs: object, **_: object) -> list[CheckMessage]:
    """The rates of settings can be read: otherwise no throttler would start."""
    errors: list[CheckMessage] = []
    for rates in (default_rates, output_rate):
        try:
            rates()
        except BadSetting as error:
            errors.append(Error(f"{error}.", id="spillway.E055"))
    return errors


@register(Tags.database)
def rows_outlive_every_message(
    app_configs: object, databases: Sequence[str] | None = None, **_: object
) -> list[CheckMessage]:
    """A customer's lifetime that was set while rows were kept longer."""
    return [error for alias in databases or () for error in _customers(alias)] if settings.CASSANDRA else []


def _customers(alias: str) -> Iterator[CheckMessage]:
    try:
        beyond = list(Customer.objects.using(alias).outliving(longest_ttl()).order_by("pk")[:3])
    except DatabaseError:
        return  # `migrate` checks before it makes the table
    if beyond:
        yield Error(
            f"ttl_seconds of {', '.join(one.pk for one in beyond)}: longer than {longest_ttl()}, a day less than "
            f"THROTTLER_BUFFER_DAYS={settings.THROTTLER_BUFFER_DAYS} keeps a row in Cassandra.",
            id="spillway.E054",
        )
