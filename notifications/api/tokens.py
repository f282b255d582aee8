"""API tokens: 256 random bits, shown once, stored as a hash."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone

from config.admin.levers import Operator
from config.database.clock import database_now
from config.fields import CONTROL, IDENTIFIER_LENGTH, IdentifierField
from outbox.audit_log import actions

MARK = "spillway"  # secret scanners find leaked tokens by such a prefix
PREFIX_BYTES, SECRET_BYTES = 6, 32
MOST_RATE = 100_000.0
TOUCH_EVERY = timedelta(minutes=1)
NOBODY = hashlib.sha256(b"").hexdigest()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Queries of tokens."""

    def unrevoked(self) -> ApiTokenQuerySet:
        return self.filter(revoked_at__isnull=True)

    def valid(self, now: datetime) -> ApiTokenQuerySet:
        """Neither revoked nor expired."""
        return self.unrevoked().filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now))

    def revoke(self, who: str, now: datetime) -> int:
        return self.unrevoked().update(revoked_at=now, revoked_by=who[:150])

    def unused_since(self, when: datetime) -> ApiTokenQuerySet:
        return self.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lt=when))


SUBJECT = "notifications.apitoken"


class ApiToken(models.Model):
    """A caller of the API, with its rate and its customer. The token itself is `spillway_<prefix>_<secret>`."""

    name = models.CharField(max_length=100, help_text="The program or team that uses it.")
    prefix = IdentifierField(max_length=20, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False, help_text="SHA-256 of the whole token.")
    customer_id = IdentifierField(
        "customer",
        blank=True,
        default="",
        help_text="It then sends for this throttler customer and sees no orders. Empty: it is for orders.",
    )
    channels = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Names of HANDLERS with commas. It then promises messages for these channels and sees no orders.",
    )
    rate = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(MOST_RATE)],
        help_text="Requests a second. Empty: API_RATE_PER_SECOND; 0: unlimited.",
    )
    full_at = models.BigIntegerField(
        default=0, editable=False, help_text="When its bucket is full again, in microseconds since 1970."
    )
    created_by = models.CharField(max_length=150, editable=False)
    created_at = models.DateTimeField(editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False, help_text="To the minute.")
    expires_at = models.DateTimeField(
        "expires", null=True, blank=True, help_text="UTC. From then on it is refused. Empty: it never expires."
    )
    revoked_at = models.DateTimeField(null=True, editable=False)
    revoked_by = models.CharField(max_length=150, default="", editable=False)

    text: str  # of one that was just made; stored nowhere

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        permissions = [("revoke_apitoken", "Can revoke API tokens")]

    def __str__(self) -> str:
        return self.name

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def state(self, now: datetime) -> str:
        """The word for it: a key of `config.admin.html.STATES`."""
        return "revoked" if self.revoked_at else "expired" if self.is_expired(now) else "valid"

    @property
    def allowed_channels(self) -> Sequence[str]:
        """Those for which it promises messages, and whose messages it sees."""
        return channels_in(self.channels)

    @property
    def allowed_rate(self) -> float:
        """Requests a second; 0 is unlimited."""
        return settings.API_RATE_PER_SECOND if self.rate is None else self.rate


def issue(
    name: str,
    operator: Operator,
    *,
    customer_id: str = "",
    channels: str = "",
    rate: float | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its text, which is stored nowhere. ValueError says which value is not usable."""
    name = " ".join(name.split())
    if fault := fault_of_name(name):
        raise ValueError(f"NAME: {fault}")
    if fault := fault_of_customer(customer_id):
        raise ValueError(f"--customer: {fault}")
    if fault := fault_of_channels(channels):
        raise ValueError(f"--channels: {fault}")
    channels = ",".join(channels_in(channels))
    if rate is not None and not 0 <= rate <= MOST_RATE:
        raise ValueError(f"--rate: between 0 (unlimited) and {MOST_RATE:,.0f} requests a second")
    now = database_now()
    if expires_at is not None and expires_at <= now:
        raise ValueError(f"--expires: {expires_at:%F %T} UTC is over")
    prefix = secrets.token_hex(PREFIX_BYTES)
    text = f"{MARK}_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    with transaction.atomic():
        token = ApiToken.objects.create(
            name=name, prefix=prefix, digest=digest_of(text), customer_id=customer_id, channels=channels,
            rate=rate, expires_at=expires_at, created_by=operator.name[:150], created_at=now,
        )  # fmt: skip
        actions.record(
            operator,
            "create token",
            f"API token {name}",
            reason="",
            detail={"prefix": prefix, "expires": str(expires_at or "never"), "channels": channels},
            subject_type=SUBJECT,
            subject_id=token.pk,
        )
    return token, text


def fault_of_name(name: str) -> str:
    """Why this is no name of a token, or an empty text."""
    fits = 0 < len(name) <= 100 and name.isprintable()
    return "" if fits else "1 to 100 printable characters, the program or team that uses the token"


def fault_of_customer(customer_id: str) -> str:
    """Why no notification can have this customer, or an empty text; none at all is a token for orders."""
    blank = bool(customer_id) and not customer_id.strip()
    if blank or len(customer_id) > IDENTIFIER_LENGTH or CONTROL.search(customer_id):
        return f"at most {IDENTIFIER_LENGTH} characters, none of them a control character, and not only spaces"
    return ""


def channels_in(text: str) -> list[str]:
    """The names in `email, texts`, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def fault_of_channels(channels: str) -> str:
    """Why no token can have these channels, or an empty text; none at all is a token that promises nothing."""
    names = channels_in(channels)
    if unknown := [name for name in names if name not in settings.HANDLERS]:
        return f"there is no channel {unknown[0]!r}, only {', '.join(settings.HANDLERS)}"
    return "" if len(",".join(names)) <= 500 else "at most 500 characters"


def end_of(text: str) -> datetime:
    """When a token ends that is valid until `2027-01-31` (that day is its last) or `2027-01-31T12:00`, UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--expires: {text!r} is neither a day (2027-01-31) nor a time (2027-01-31T12:00)") from None
    if len(text) == len("2027-01-31"):
        moment += timedelta(days=1)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def revoke(token_ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Make tokens invalid for ever, from the next request on. Returns how many were valid."""
    with transaction.atomic():
        chosen = ApiToken.objects.filter(pk__in=token_ids)
        names = list(chosen.order_by("pk").values_list("name", flat=True))
        revoked = chosen.revoke(operator.name, database_now())
        if revoked:
            subject = f"API token {', '.join(names)}"
            actions.record(
                operator,
                "revoke token",
                subject,
                reason=reason,
                rows=revoked,
                subject_type=SUBJECT,
                subject_ids=token_ids,
            )
    return revoked


def identify(text: str) -> ApiToken | None:
    """The unrevoked token with this text; it may have expired.

    One indexed look-up, then a comparison that takes the same time whatever was found.
    """
    mark, _, rest = text.partition("_")
    prefix = rest.partition("_")[0]
    known = len(prefix) == 2 * PREFIX_BYTES and mark == MARK and prefix.isascii() and prefix.isalnum()
    token = ApiToken.objects.unrevoked().filter(prefix=prefix).first() if known else None
    right = hmac.compare_digest(digest_of(text), token.digest if token else NOBODY)
    return token if right and token else None


def digest_of(text: str) -> str:
    """No salt and no slow hash: nobody guesses 256 random bits."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def touch(token: ApiToken) -> None:
    """Note the time of use, at most once a minute over all processes."""
    # This host's clock saves most of the queries; the database's clock decides.
    if token.last_used_at and token.last_used_at > timezone.now() - TOUCH_EVERY:
        return
    now = database_now()
    ApiToken.objects.filter(pk=token.pk).unused_since(now - TOUCH_EVERY).update(last_used_at=now)
