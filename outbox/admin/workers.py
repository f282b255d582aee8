"""Admin pages of workers, and of the positions that they have reached."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping

from django.contrib import admin
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections, models, transaction
from django.db.models import F, Max
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from config import replica
from config.admin import humanize
from config.admin.filters import Segments
from config.admin.html import chip, clock_and_age, plain_state
from config.admin.levers import Lever, LeverResult, Operator
from config.admin.lists import Keyset
from config.admin.pages import KeysetChangeList, ReadOnlyAdmin, age_column
from config.database.clock import database_now
from config.telemetry.redaction import masked_error
from outbox.admin.channels import state_of_channel
from outbox.audit_log import actions
from outbox.bookkeeping.models import UNSEEN, Watermark
from outbox.bookkeeping.progress import BEHIND, kafka_away, lag_of
from outbox.channels.models import ChannelState
from outbox.processes.models import WorkerProcess
from outbox.processes.overview import FORGETTABLE, Liveness, Sighting, sightings, state_of, why


# -- Workers -------------------------------------------------------------------------------------------------
def _forget(keys: list[int], operator: Operator, reason: str) -> LeverResult:
    """Delete what is known of workers that will not come back, and say so in the audit log."""
    now, forgotten, refused = database_now(), 0, []
    for row in WorkerProcess.objects.filter(pk__in=keys).order_by("pk"):
        state = state_of(row, now)
        with transaction.atomic():
            if state not in FORGETTABLE or not WorkerProcess.objects.forget(row):
                refused.append(f"{row}: it has reported again.")
                continue
            actions.record(
                operator, "forget_worker", f"Worker {row}", reason=reason, subject_type="outbox.workerprocess",
                subject_id=row.pk, before={"state": state.value, "seen_at": row.seen_at.isoformat(), "holds": row.holds},
            )  # fmt: skip
        forgotten += 1
    return LeverResult(forgotten, refused)


def _alive(row: WorkerProcess) -> str:
    return f"{row.command} on {row.host} reports. Stop it first: one that is stopped tells so."


def _forgettable(rows: models.QuerySet) -> models.QuerySet:
    now = database_now()
    return rows.filter(pk__in=[row.pk for row in rows if state_of(row, now) in FORGETTABLE])


FORGET = Lever(
    name="forget", verb="Forget", past="Forgot", icon="ban", keep="Keep it", right="forget_workerprocess",
    nouns=("worker", "workers"), promise="Home, doctor and alerts do not miss it any more.",
    detail="For a worker that was scaled away and did not end by itself. If it lives after all, its next report brings it back.",
    act=_forget, ready=_forgettable, why_not=_alive,
)  # fmt: skip


class WorkersChangeList(KeysetChangeList):
    """All processes of the last day on one page, the dead and the frozen first: their states depend on the time."""

    def get_results(self, request: HttpRequest) -> None:
        seen = sightings(database_now())
        for sighting in seen:
            sighting.row.state = sighting.state  # type: ignore[attr-defined]
        self.show([sighting.row for sighting in seen])


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin[WorkerProcess]):
    place = 58
    levers = (FORGET,)
    list_display = ["worker", "state_shown", "host", "holds", "rate_shown", "version", "started", "reported"]
    empty = (
        "No worker has reported within a day",
        "Each one that runs until it is stopped reports every ten seconds. Those with --once or --until-idle do not.",
    )
    started = age_column("since", "Started")
    reported = age_column("seen_at", "Last report")

    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[KeysetChangeList]:
        return WorkersChangeList

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"foundations": list(foundations()), **(extra_context or {})})

    @admin.display(description="Worker")
    def worker(self, row: WorkerProcess) -> str:
        line = '<span class="sw-nowrap">{}</span><span class="sw-second">{}</span>'
        return format_html(line, row.command, row.arguments) if row.arguments else row.command

    @admin.display(description="State")
    def state_shown(self, row: WorkerProcess) -> str:
        state = f"worker_{getattr(row, 'state', '')}"
        return plain_state(state) if state == "worker_runs" else chip(state)

    @admin.display(description="Rate")
    def rate_shown(self, row: WorkerProcess) -> str:
        return format_html('<span class="sw-number">{}</span>', rate_of(row, getattr(row, "state", Liveness.RUNS)))

    def detail(self, request: HttpRequest, row: WorkerProcess) -> dict[str, object]:
        now = database_now()
        stopped = Sighting(row, Liveness.STOPPED)
        seen = next((sighting for sighting in sightings(now) if sighting.row.pk == row.pk), stopped)
        return {
            "now": now,
            "title": f"{row.command} on {row.host}",
            "state": f"worker_{seen.state}",
            "why": why(seen, now),
            "facts": [
                ("Arguments", row.arguments or "none"),
                ("Process", f"{row.pid:,}".replace(",", "")),
                ("Version", row.version),
                ("Holds", row.holds or humanize.UNKNOWN),
                ("Rate", rate_of(row, seen.state)),
                ("Moved since it started", f"{row.moved:,} {row.unit}".strip()),
                ("Started", clock_and_age(row.since, now)),
                ("Starts", f"{row.starts:,} since {humanize.clock_in_zone(row.kept_since, now)}"),
                ("Its loop came round", clock_and_age(row.round_at, now)),
                ("Last report", clock_and_age(row.seen_at, now)),
                ("Ended", clock_and_age(row.ended_at, now)),
                ("Missed by its host", clock_and_age(row.missed_at, now)),
            ],
        }


def rate_of(row: WorkerProcess, state: Liveness) -> str:
    """`14.2 records/s`; unknown of a process that does not work now."""
    if state not in (Liveness.RUNS, Liveness.HANGS) or not row.unit:
        return humanize.UNKNOWN
    return f"{humanize.rate(row.rate)} {row.unit}/s"


def foundations() -> Iterator[tuple[str, str, str, str]]:
    """What workers stand on: (name, state, words, address): databases, Kafka, channels."""
    for alias in connections:
        yield (*_database(alias), "")
    now = database_now()
    positions = reverse("admin:outbox_watermark_changelist")
    heard = Watermark.objects.aggregate(heard=Max("updated_at"))["heard"]
    if away := kafka_away(now):
        yield "Kafka", "breaker", f"no answer since {humanize.clock_in_zone(away, now)}", positions
    elif heard is None:
        yield "Kafka", "waiting", "nothing was read from it yet", positions
    else:
        yield "Kafka", "healthy", f"a worker heard it {humanize.ago(heard, now)}", positions
    for row in ChannelState.objects.order_by("name"):
        state = state_of_channel(row, now)
        words = row.pause_reason if row.paused else masked_error(row.last_error) if row.failures else "sending"
        yield f"Channel {row.name}", state, words, reverse("admin:outbox_channelstate_change", args=[row.pk])


def _database(alias: str) -> tuple[str, str, str]:
    name = "Database" if alias == DEFAULT_DB_ALIAS else alias.capitalize()
    if alias == replica.REPLICA and not replica.usable():  # first: a replica that is silent is not waited for again
        return name, "behind", f"{replica.lag.in_words()}; the primary answers instead"
    started = time.perf_counter()
    try:
        database_now(alias)
    except (DatabaseError, InterfaceError):
        return name, "breaker", "it does not answer"
    took = (time.perf_counter() - started) * 1000
    behind = f", {replica.lag.in_words()}" if alias == replica.REPLICA else ""
    return name, "healthy", f"{connections[alias].display_name} answers in {took:.1f} ms{behind}"


# -- Positions -----------------------------------------------------------------------------------------------
PARTITION = re.compile(r"(?P<topic>[\w.-]+)/(?P<partition>\d{1,9})", re.ASCII)


class StateOfPosition(Segments):
    title = "state"
    parameter_name = "state"
    choices_in_words = [("all", "All"), ("stopped", "Stopped"), ("behind", "Behind")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if self.chosen() == "stopped":
            return queryset.exclude(alarm="")
        return queryset.filter(end_offset__gt=F("next_offset")) if self.chosen() == "behind" else queryset


def state_of_position(row: Watermark) -> str:
    """One word for a partition, by what it last reported."""
    now = timezone.now()
    if row.alarm:
        return "stopped"
    if now - row.updated_at > UNSEEN:
        return "unseen"
    late = lag_of(row, now) and (row.caught_up_at is None or now - row.caught_up_at > BEHIND)
    return "behind" if late else "healthy"


@admin.register(Watermark)
class WatermarkAdmin(ReadOnlyAdmin[Watermark]):
    place = 60
    keyset = Keyset(descending=False, back="Back", on="On")
    list_display = ["position", "state", "group", "count_lag", "caught_up", "reported"]
    list_filter = [StateOfPosition]
    links = ["group"]
    caught_up = age_column("caught_up_at", "Read to the end")
    reported = age_column("updated_at", "Last report")

    def find(self, key: str) -> Iterable[Watermark]:
        place = PARTITION.fullmatch(key)
        return list(Watermark.objects.filter(**place.groupdict())) if place else ()

    def words(self, row: Watermark) -> str:
        return f"{row.topic}/{row.partition} of {row.group}, next offset {row.next_offset:,}"

    @admin.display(description="Partition")
    def position(self, row: Watermark) -> str:
        return f"{row.topic}/{row.partition}"

    @admin.display(description="State")
    def state(self, row: Watermark) -> str:
        state = state_of_position(row)
        return plain_state(state) if state == "healthy" else chip(state)

    @admin.display(description="Records behind")
    def count_lag(self, row: Watermark) -> str:
        behind = lag_of(row, timezone.now())
        return format_html('<span class="sw-number">{}</span>', humanize.UNKNOWN if behind is None else f"{behind:,}")

    def detail(self, request: HttpRequest, row: Watermark) -> dict[str, object]:
        now = timezone.now()
        offsets = [("Consumer group", row.group), ("Topic id", row.topic_id or humanize.UNKNOWN)]
        offsets += [("Next offset", f"{row.next_offset:,}"), ("End of the log", f"{row.end_offset:,}")]
        return {
            "title": f"{row.topic}, partition {row.partition}",
            "state": state_of_position(row),
            "lag": lag_of(row, now),
            "facts": [
                *offsets,
                ("Read to the end", humanize.ago(row.caught_up_at, now)),
                ("Last report", clock_and_age(row.updated_at, now)),
            ],
        }
