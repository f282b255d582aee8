"""/metrics, /healthz and /readyz."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from config import replica
from config.database.clock import compared_clocks
from config.database.queries import asked_together
from config.database.tables import ONLY_READS, missing_migrations, only_reads
from config.flows import Reading, flows
from config.partitions import rotation
from config.telemetry.logs import log
from config.telemetry.metrics import CLOCK_AHEAD, REPLICA_LAG

# -- /metrics ------------------------------------------------------------------------------------------------
OURS = "spillway_"


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The page Prometheus reads.

    django-prometheus has such a view, but where several processes serve (PROMETHEUS_MULTIPROC_DIR) it knows
    the counters of all of them and nothing else: gauges from the database would be missing.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Scrape())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Scrape(Collector):
    """What the processes counted, and the flows' gauges as the database has them.

    Gauges of the flows that this process holds itself are empty, so they are left out: a database that does
    not answer must make a gap in the graph, not a zero.
    """

    def collect(self) -> Iterator[Metric]:
        for metric in processes().collect():
            if metric.type != "gauge" or not metric.name.startswith(OURS):
                yield metric
        try:
            yield from families_of(replica.prefer(lambda: list(read()))).values()
        except (DatabaseError, InterfaceError) as error:
            log.warning("scrape_without_database", error=type(error).__name__)


def processes() -> CollectorRegistry:
    """What all web processes counted: this one alone, or those that share the directory."""
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry


def read() -> Iterator[Reading]:
    """Every flow's readings, how long the partitions last, and whether the clock of this machine is right."""
    now, ahead = compared_clocks()
    yield Reading(CLOCK_AHEAD, ahead)
    yield from rotation.partition_gauges(now)
    with asked_together():
        readings = [reading for flow in flows() for reading in flow.gauges(now)]
    yield from readings
    if replica.configured() and (behind := replica.lag.seconds()) is not None:
        yield Reading(REPLICA_LAG, behind)


def families_of(readings: list[Reading]) -> dict[str, GaugeMetricFamily]:
    """Readings by metric, with the name and the meaning the catalogue gives it."""
    families: dict[str, GaugeMetricFamily] = {}
    for reading in readings:
        described = next(iter(reading.gauge.describe()))
        family = families.setdefault(
            described.name, GaugeMetricFamily(described.name, described.documentation, labels=list(reading.labels))
        )
        family.add_metric(list(reading.labels.values()), reading.value)
    return families


# -- /healthz (keep this process?), /readyz (send it traffic?) -----------------------------------------------
@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers. Nothing else is asked: a dead database is no reason to restart it."""
    return JsonResponse({"process": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """One line per check; 503 when one fails.

    Stopped partitions are not among them: an operator needs the admin to start them again. They are on home and
    in `spillway_partition_stopped`.
    """
    lines = {name: _verdict(check) for name, check in CHECKS.items()}
    return JsonResponse(lines, status=200 if set(lines.values()) == {"ok"} else 503)


def _verdict(check: Callable[[], str]) -> str:
    try:
        return check() or "ok"
    except (DatabaseError, InterfaceError) as error:
        # Only the class: texts of drivers name hosts and users, and this page asks for no password.
        return f"failed: {type(error).__name__}"


def _database() -> str:
    return f"failed: {ONLY_READS}" if only_reads() else ""


def _migrations() -> str:
    # Reading them all takes a tenth of a second: too much for a probe that comes every few seconds.
    missing = _missing(int(time.monotonic() // 60))
    return f"failed: {missing}" if missing else ""


@lru_cache(maxsize=1)
def _missing(minute: int) -> str:
    return missing_migrations()


CHECKS = {"database": _database, "migrations": _migrations}
