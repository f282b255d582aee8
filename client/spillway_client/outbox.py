"""Promises a message: a row in the transaction of the change that it is about."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, connections, router, transaction

from spillway_client.models import Promise, digest_of
from spillway_client.options import read_options

MAIL = ("to", "subject", "text")  # what a payload of the channel `email` has at least
FOUR_BYTES = re.compile("[\U00010000-\U0010ffff]")
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class IdempotencyConflict(Exception):
    """The key was used for another message."""


def publish(
    event_type: str,
    aggregate: str,
    payload: dict[str, Any],
    *,
    idempotency_key: str,
    channel: str = "email",
    expires_at: datetime | None = None,
) -> int:
    """Promise that `payload` (JSON-able) leaves through `channel` of Spillway, if the transaction under way commits.

    Change the row that the message is about first, with a guard: messages of one aggregate leave in the order of the
    calls, and only a lock makes that the order of the changes. After `expires_at` (aware) nobody wants the message.

    Returns the promise's number. A known key changes nothing and returns that of the first. Raises IdempotencyConflict
    when the key was used for another message, ValueError for one that could never be sent, RuntimeError outside of a
    transaction.
    """
    options, database = read_options(), router.db_for_write(Promise)
    if not connections[database].in_atomic_block:
        raise RuntimeError("publish() outside a transaction: the message could outlive a change that failed")
    texts = {"channel": channel, "event_type": event_type, "aggregate": aggregate, "idempotency_key": idempotency_key}
    for (name, text), longest in zip(texts.items(), (50, 100, 200, options.longest_key), strict=True):
        if not isinstance(text, str) or not 0 < len(text) <= longest or "\x00" in text:
            raise ValueError(f"{name}: 1 to {longest} characters without U+0000 are needed")
        text.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    if expires_at is not None and expires_at.utcoffset() is None:
        raise ValueError("expires_at: a time with its zone is needed")
    content = {"channel": channel, "event_type": event_type, "aggregate": aggregate}
    content["payload"] = _encoded(payload, channel, options.MAX_BYTES)
    promise = Promise(**content, idempotency_key=idempotency_key, key_digest=digest_of(idempotency_key))
    promise.expires_at = expires_at.isoformat() if expires_at else ""
    promise.state = Promise.State.CAPTURED if options.DEBEZIUM else Promise.State.PENDING
    try:
        with transaction.atomic(using=database):  # another transaction with the same key is waited for
            promise.save(force_insert=True, using=database)
    except IntegrityError:
        known = Promise.objects.using(database).keyed(idempotency_key)
        # A repeatable read does not see what was committed since; a lock does, and holds up the relay: only if need be.
        if (first := known.first() or known.select_for_update().first()) is None:
            raise
        if any(getattr(first, name) != value for name, value in content.items()):
            raise IdempotencyConflict(f"the key {idempotency_key!r} was used for another message") from None
        return first.pk
    return promise.pk


def _encoded(payload: object, channel: str, most: int) -> str:
    if not isinstance(payload, dict):
        raise ValueError("payload: a dict is needed")
    if channel == "email" and (missing := [name for name in MAIL if not isinstance(payload.get(name), str)]):
        raise ValueError(f"payload: a mail needs {missing[0]!r}, a text")
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"), cls=DjangoJSONEncoder)
    if NUL.search(text):
        raise ValueError("payload: U+0000 cannot be sent")
    text = FOUR_BYTES.sub(lambda found: json.dumps(found[0])[1:-1], text)  # Django 4.2 speaks three to MySQL
    if (size := len(text.encode())) > most:
        raise ValueError(f'payload: {size} bytes, SPILLWAY_CLIENT["MAX_BYTES"] allows {most}')
    return text
