"""Pages of the overflow: what waits for a customer, in the order in which it leaves, and one message of it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.conf import settings
from django.contrib.admin.utils import quote
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from config.telemetry.logs import log
from config.telemetry.redaction import DOTS, visible
from outbox.audit_log import reveal
from throttler.customers.models import Customer
from throttler.customers.situation import MOST_LANES, ttl_of
from throttler.lanes.models import Lane
from throttler.messages import NAMED, READABLE, moment_of
from throttler.overflow import store_of_settings
from throttler.overflow.store import LAST_OFFSET, LaneRange, OverflowRow

PAGE = 50
SUBJECT = "throttler.overflowmessage"
SEARCHED = 1000  # rows of a page that is searched
Context = dict[str, object]


@dataclass(frozen=True)
class WaitingMessage:
    """A row of the store, as the pages show it."""

    row: OverflowRow
    ttl: int

    @property
    def created(self) -> datetime:
        return moment_of(self.row.created_us)

    @property
    def expires(self) -> datetime:
        """Its own end, or that of its customer's lifetime."""
        return moment_of(self.row.expires_us) if self.row.expires_us else self.created + timedelta(seconds=self.ttl)

    @property
    def size(self) -> int:
        return len(self.row.payload)

    @property
    def url(self) -> str:
        where: dict[str, str | int] = {
            "customer": self.row.customer_id,
            "partition": self.row.partition,
            "offset": self.row.offset,
        }
        return f"{reverse('admin:throttler_customer_message')}?{urlencode(where)}"


def list_page(request: HttpRequest, row: Customer, context: Context) -> HttpResponse:
    """A page of what waits, oldest first; or the one message with a notification id."""
    lanes = _lanes(row)
    lane = _chosen(lanes, request.GET.get("partition", ""))
    wanted = request.GET.get("notification", "").strip()
    after = _number(request.GET.get("after", ""))
    try:
        rows, silent = _rows(lanes, lane, wanted, after) if lane else [], False
    except DatabaseError as error:  # of a store that is not this database
        log.warning("overflow_store_unavailable", error=str(error))
        rows, silent = [], True
    context |= {
        "silent": silent,
        "title": f"Waiting for {row.pk}",
        "lanes": lanes,
        "lane": lane,
        "wanted": wanted,
        "searched": store_of_settings().searched(SEARCHED),
        "messages_shown": [WaitingMessage(one, ttl_of(row)) for one in rows[:PAGE]],
        "more": rows[PAGE - 1].offset if len(rows) > PAGE else None,
        "after": after,
        "waiting": sum(lane.backlog for lane in lanes),
        "back": reverse("admin:throttler_customer_change", args=[quote(row.pk)]),
    }
    return TemplateResponse(request, "admin/throttler/customer/messages.html", context)


def message_page(request: HttpRequest, row: Customer, context: Context) -> HttpResponse:
    """One message; 404 when the store does not have it, or has it no longer."""
    partition, offset = (_number(request.GET.get(name, "")) for name in ("partition", "offset"))
    lane = next((lane for lane in _lanes(row) if lane.partition == partition), None)
    try:
        rows = _read(lane, offset - 1, offset, 1) if lane and offset is not None else []
    except DatabaseError:
        return HttpResponseRedirect(list_url(row))  # which says that the store does not answer
    if lane is None or not rows:
        raise Http404
    message = WaitingMessage(rows[0], ttl_of(row))
    subject = f"{message.row.partition}/{message.row.offset}/{row.pk}"
    if request.method == "POST":
        return reveal.answer(request, SUBJECT, subject, f"Buffered message {message.row.notification_id}", message.url)
    sight = reveal.sight_of(request.user, SUBJECT, subject, message.url)
    context |= {
        "title": f"Message {message.row.notification_id}",
        "message": message,
        "left": message.row.offset <= lane.drained,
        "sight": sight,
        "size": message.size,
        "payload": sight.payload(message.row.payload, READABLE, NAMED),
        "headers": list(_headers(message.row.headers, sight.shown)),
        "list_url": list_url(row),
    }
    return TemplateResponse(request, "admin/throttler/customer/message.html", context)


def list_url(row: Customer) -> str:
    return f"{reverse('admin:throttler_customer_messages')}?{urlencode({'customer': row.pk})}"


def _rows(lanes: Sequence[Lane], lane: Lane, wanted: str, after: int | None) -> list[OverflowRow]:
    if wanted:
        matches = [store_of_settings().find(_searched(one), wanted) for one in lanes]
        return [one for one in matches if one]
    return _read(lane, lane.drained if after is None else max(after, lane.drained), lane.seen, PAGE + 1)


def _searched(lane: Lane) -> LaneRange:
    # From where this backlog began: who asks wants to know of those that have left, too. A store that looks at some
    # rows only looks at those that leave next.
    after = lane.first - 1 if store_of_settings().searched(SEARCHED) is None else lane.drained
    return _range(lane, after, lane.seen, SEARCHED)


def _read(lane: Lane, after: int, upto: int, limit: int) -> list[OverflowRow]:
    asked = _range(lane, after, upto, limit)
    return store_of_settings().read([asked])[asked.partition, asked.customer_id] if after < upto else []


def _range(lane: Lane, after: int, upto: int, limit: int) -> LaneRange:
    place = lane.partition, lane.customer_id, lane.topic_id
    return LaneRange(*place, after, upto, lane.day or _oldest_day(), limit, lane.newest)


def _oldest_day() -> date:
    """Rows of a lane that has nothing more waiting are kept this long."""
    return datetime.now(UTC).date() - timedelta(days=settings.THROTTLER_BUFFER_DAYS)


def _lanes(row: Customer) -> list[Lane]:
    """Those with a backlog first."""
    return list(Lane.objects.filter(customer_id=row.pk).order_by("-backlog", "partition")[:MOST_LANES])


def _chosen(lanes: Sequence[Lane], partition: str) -> Lane | None:
    return next((lane for lane in lanes if str(lane.partition) == partition), lanes[0] if lanes else None)


def _number(text: str) -> int | None:
    """An offset or a partition; None for anything else."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return number if number is None or number < LAST_OFFSET else None


def _headers(stored: bytes, shown: bool) -> Iterator[tuple[str, str]]:
    for name, value in json.loads(stored) if stored else ():
        text = visible(b64decode(value or "").decode("utf-8", "backslashreplace"))
        yield (name, text) if shown else (DOTS, DOTS)
