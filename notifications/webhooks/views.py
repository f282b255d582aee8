"""`POST /webhooks/email/{esp}`: verifies, stores, then applies events. A provider waits for the first two."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.environment.mail import is_weak
from config.telemetry import metrics
from config.telemetry.logs import log
from notifications.webhooks.fields import Malformed
from notifications.webhooks.inbox import apply, store
from notifications.webhooks.providers import PROVIDERS, Event, Provider
from notifications.webhooks.signatures import Forged, StaleSignature, Unavailable

MOST_EVENTS = 5000


class Rejected(Exception):
    """A refused request: the status to answer, and the verdict that is counted. Nothing is stored."""

    def __init__(self, status: int, verdict: str, text: str) -> None:
        super().__init__(text)
        self.status, self.verdict = status, verdict


@csrf_exempt
@require_POST
def receive(request: HttpRequest, esp: str) -> HttpResponse:
    """Answer 2xx once the events are stored; the provider repeats everything else."""
    provider = PROVIDERS.get(esp)
    if provider is None:
        return HttpResponse("no such provider\n", status=404, content_type="text/plain")
    try:
        headers = {name.lower(): value for name, value in request.headers.items()}
        events = _let_in(request, esp, provider, headers)
        now = database_now()
        fresh = store(events, esp, {name: headers[name] for name in provider.keeps if name in headers}, now)
    except Rejected as rejected:
        metrics.WEBHOOKS.labels(esp, rejected.verdict).inc()
        log.warning("webhook_refused", provider=esp, verdict=rejected.verdict, why=str(rejected))
        # The answer tells an attacker nothing; the log has the reason.
        return HttpResponse(f"{rejected.verdict}\n", status=rejected.status, content_type="text/plain")
    except (DatabaseError, InterfaceError) as error:
        if remedy_for(error) not in (Remedy.RERUN, Remedy.WAIT):
            raise
        log.warning("webhook_not_stored", provider=esp, error=type(error).__name__)
        return HttpResponse("unavailable\n", status=503, content_type="text/plain", headers={"Retry-After": "2"})
    if repeated := len(events) - len(fresh):
        metrics.WEBHOOKS.labels(esp, "replayed").inc(repeated)
    try:
        apply(fresh, now)
    except (DatabaseError, InterfaceError):
        # The events are stored; `apply_webhooks` applies them later.
        log.exception("webhook_apply_failed", provider=esp, events=len(fresh))
    return HttpResponse(status=204)


def _let_in(request: HttpRequest, esp: str, provider: Provider, headers: dict[str, str]) -> list[Event]:
    """The events of a request with a valid, fresh signature."""
    secrets = settings.EMAIL_WEBHOOK_SECRETS.get(esp)
    if not secrets:
        raise Rejected(403, "refused", f"EMAIL_WEBHOOK_SECRETS has no entry for {esp}")
    if any(is_weak(esp, secret) for secret in secrets):
        raise Rejected(503, "refused", f"EMAIL_WEBHOOK_SECRETS: {esp}'s secret is too short, or mistyped")
    if request.content_type not in provider.content_types:
        raise Rejected(415, "malformed", f"content type {request.content_type!r:.60}")
    if int(request.META.get("CONTENT_LENGTH") or 0) > settings.EMAIL_WEBHOOK_MAX_BYTES:
        raise Rejected(413, "malformed", "larger than EMAIL_WEBHOOK_MAX_BYTES")
    body = request.body
    try:
        provider.verify(secrets, headers, body, database_now())
        events = provider.read(body, headers)
    except Forged as error:
        raise Rejected(401, "forged", str(error)) from error
    except StaleSignature as error:
        raise Rejected(401, "stale", str(error)) from error
    except Unavailable as error:
        raise Rejected(503, "refused", str(error)) from error
    except Malformed as error:
        raise Rejected(400, "malformed", str(error)) from error
    if len(events) > MOST_EVENTS:
        raise Rejected(400, "malformed", f"{len(events)} events in one request")
    return events
