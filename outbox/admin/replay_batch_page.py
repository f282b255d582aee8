"""What the page of one replay batch says, from preview to proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from config.admin import humanize, svg
from config.admin.html import clock_and_age
from config.admin.humanize import pretty
from config.database.clock import database_now
from config.flows import mask_of
from config.telemetry.redaction import masked
from outbox.audit_log.models import OperatorAction
from outbox.audit_log.reveal import Visibility
from outbox.delivery.message_letters import in_vain
from outbox.groups.models import FailureGroup
from outbox.letters.edits import before_and_after
from outbox.letters.field_changes import LONGEST_PATH, FieldChange, paths_in
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from outbox.replay_batches import lifecycle, pacing
from outbox.replay_batches.models import OF_MESSAGES, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import words_of

VERBING = {
    "requeue": "Requeueing", "edit": "Editing", "discard": "Discarding", "resolve": "Resolving", "restore": "Restoring",
    "resend": "Resending",
}  # fmt: skip
DONE = {
    "requeue": "Requeued", "edit": "Edited and requeued", "discard": "Discarded", "resolve": "Resolved",
    "restore": "Restored", "resend": "Resent",
}  # fmt: skip
# Of verbs that wait for their effect: on its way, proven, failed.
FATES = {
    **dict.fromkeys(("requeue", "edit"), ("taken back, not yet verified", "verified", "failed again")),
    "resend": ("sent again, not yet accepted", "accepted", "failed"),
}
CHIPS = {"counting": "waiting", "previewed": "due", "holding": "held", "canary": "running", "verifying": "publishing"}
WORDS = {
    "counting": "Counting",
    "previewed": "Preview",
    "holding": "Holding",
    "canary": "Canary",
    "verifying": "Verifying",
}
MOVING = ("counting", "holding", "canary", "running")  # refreshed every second
NEWEST = 10
SAMPLES = 3  # letters that a preview shows
LONGEST = 366 * 86_400.0  # seconds: an end farther away is one of these
MOST_NEW = 100  # letters that came meanwhile and are counted
LONGEST_VALUE = 300  # characters of a value
MOST_PATHS = 100  # that the form of an edit offers
MOST_SAMPLED, MOST_BYTES = 20, 200_000  # letters in which it looks for them
DRAFT = "draft"  # an edit, by who typed it
LOOKED_AT = 1000  # failed letters whose new cause is counted


class BatchStep(NamedTuple):
    """One of the five steps: its word, and whether it is over, current or still to come."""

    word: str
    state: str


def context(batch: ReplayBatch, sight: Visibility, mine: bool) -> dict[str, object]:
    """Everything the templates of one batch show. `mine`: the reader has typed its change."""
    now, parts, oldest = database_now(), parts_of(batch), samples(batch, sight, mine)
    over = (
        batch.state in ("done", "cancelled")
        and not batch.requeued
        and not (batch.state == "cancelled" and batch.eligible)
    )
    live = batch.state != "previewed" and not over
    return {
        "now": now, "title": headline(batch, now), "words": words_of(batch), "steps": steps(batch),
        "parts": parts, "bar": bar(batch, parts), "hold_bar": hold_bar(batch, now),
        "chip_state": CHIPS.get(batch.state, batch.state), "chip_word": state_word(batch),
        "live": live, "refresh_seconds": live and (1 if batch.state in MOVING else 5),
        "reasons": sorted(batch.skipped_why.items(), key=lambda pair: -pair[1]),
        "causes": causes(batch), "newest": newest(batch), "checks": checks(batch, oldest), "facts": facts(batch, now),
        "done": DONE[batch.verb], "samples": oldest, "sight": sight,
        "change": change_in_words(batch, shown=sight.shown or mine),
        "meanwhile": meanwhile(batch),
        "waits": lifecycle.waiting_in_numbers(batch, now), "why": lifecycle.why_it_waits(batch, now),
        "both": ",".join(batch.nouns), "one": batch.nouns[0], "many": batch.nouns[1], "end": end(batch, now),
        "item_page": f"admin:outbox_{'outboxmessage' if batch.verb in OF_MESSAGES else 'deadletter'}_change",
        "restorable": batch.verb == "discard" and batch.state in ("done", "cancelled") and not batch.items_gone_at,
        "remaining": batch.eligible, "share": round(pacing.share_of_bad(batch.ring), 1), "judged": len(batch.ring),
        "gauge": gauge(pacing.share_of_bad(batch.ring), batch.stop_percent),
        "left": left(batch), "hold": humanize.length(settings.REPLAY_HOLD_SECONDS),
        "items_url": f"{reverse('admin:outbox_replayitem_changelist')}?batch__id__exact={batch.pk}&state=",
    }  # fmt: skip


def state_word(batch: ReplayBatch) -> str:
    if batch.state in ("canary", "running"):
        return f"{WORDS.get(batch.state, 'Running')}, {batch.percent:.0f} %"
    return WORDS.get(batch.state, "")


def headline(batch: ReplayBatch, now: datetime) -> str:
    """What it does or did, with the one number that matters."""
    letters = humanize.plural(batch.to_act_on, *batch.nouns)
    if batch.state == "counting":
        many = batch.nouns[1]
        return f"Counting the {many}" if not batch.pinned_at else f"Asking about {batch.pinned:,} {many}"
    if batch.state == "previewed" and not batch.eligible:
        return f"No {batch.nouns[0]} to {batch.verb}"
    if batch.state == "previewed":
        return f"{batch.verb.capitalize()} {letters}: look before you start"
    if batch.state == "holding":
        seconds = max(0.0, (batch.hold_until - now).total_seconds()) if batch.hold_until else 0.0
        return f"{letters} {'go' if batch.sends else 'change'} in {humanize.length(seconds, coarse=True)}"
    if batch.state == "verifying":
        return f"{DONE[batch.verb]} {letters}: {batch.requeued:,} not yet verified"
    if batch.state in ("done", "cancelled"):
        return f"{DONE[batch.verb]} {batch.requeued + batch.verified:,} of {letters}"
    return f"{VERBING[batch.verb]} {letters}: {batch.percent:.0f} % done"


def steps(batch: ReplayBatch) -> list[BatchStep]:
    """Preview, hold, canary, run, verified: which are over, and which is current."""
    size = batch.canary_size
    words = ["Preview", f"Hold {humanize.length(settings.REPLAY_HOLD_SECONDS)}"]
    words += [f"Canary of {size}" if size else "No canary", "Run", "Verified"]
    at = {"counting": 0, "previewed": 0, "holding": 1, "canary": 2, "verifying": 4, "done": 5}.get(batch.state)
    if at is None:  # paused, stopped, cancelled: where it was
        at = 3 if batch.promoted_at else 2 if batch.started_at else 1 if batch.hold_until else 0
    if not batch.sends:  # it waits for no effect
        words, at = [*words[:2], "Run"], min(at, 2) if at < 5 else 3
    return [BatchStep(word, "done" if n < at else "here" if n == at else "") for n, word in enumerate(words)]


def parts_of(batch: ReplayBatch) -> list[svg.BarPart]:
    """Outcomes as parts of what there is to do; the rest of the bar is still to be done."""
    on_its_way, done, failed = FATES.get(batch.verb, ("", DONE[batch.verb].lower(), ""))
    named = [("ok", done, batch.verified)]
    if batch.sends:
        named += [("info", on_its_way, batch.requeued), ("bad", failed, batch.failed_again)]
    named += [("warn", "refused", batch.refused)]
    return svg.parts(named, 100, batch.to_act_on)


def bar(batch: ReplayBatch, parts: Sequence[svg.BarPart]) -> SafeString:
    said = [f"{capfirst(part.word)} {part.number:,}" for part in parts]
    return svg.progress(parts, ", ".join([*said, f"remaining {batch.eligible:,}"]))


def hold_bar(batch: ReplayBatch, now: datetime) -> SafeString:
    """How much of the hold is over."""
    hold, percent = timedelta(seconds=settings.REPLAY_HOLD_SECONDS), 100.0
    if batch.hold_until and hold:
        percent = round(min(100.0, max(0.0, 100 * (1 - (batch.hold_until - now) / hold))), 1)
    return svg.progress([svg.BarPart("info", 0, percent)], f"{percent} % of the hold is over")


def gauge(share: float, limit: float) -> SafeString:
    """The gauge of the stop rule, its limit in the middle: red behind it. In percent."""
    filled = min(100.0, round(50 * share / limit, 1)) if limit else 100.0
    return svg.progress([svg.BarPart("bad" if round(share, 1) > limit else "ok", 0, filled)], height=8, mark=50)


def left(batch: ReplayBatch) -> str:
    """`about 3 min at 50 letters a second`: how long it would take at its rate, before it has begun; empty where there is none."""
    if batch.rate is None or not batch.eligible or batch.state not in ("previewed", "holding"):
        return ""
    length = humanize.length(max(1, batch.eligible / batch.rate), coarse=True)
    return f"about {length} at {batch.rate:g} {batch.nouns[1]} a second"


def end(batch: ReplayBatch, now: datetime) -> str:
    """`about 13:41, at 4.2 a second`, by what it did in the last minute; empty where that tells nothing."""
    rate = lifecycle.measured_rate(batch, now)
    if batch.state != "running" or not batch.eligible or not rate:
        return ""
    when = now + timedelta(seconds=min(batch.eligible / rate, LONGEST))
    return f"about {humanize.clock(when, now).rpartition(':')[0]}, at {rate:.2g} a second"


def causes(batch: ReplayBatch) -> list[tuple[FailureGroup, int]]:
    """The groups of the letters that failed again, of the newest thousand; the most frequent first."""
    if not batch.failed_again:
        return []
    failed = ReplayItem.objects.of(batch).filter(state="failed_again").order_by("-letter")
    letters = _left_by_messages(failed) if batch.verb in OF_MESSAGES else _successors(failed)
    counted = Counter(letters.values_list("group_id", flat=True))
    groups = FailureGroup.objects.in_bulk(counted)
    return [(groups[pk], number) for pk, number in counted.most_common(NEWEST) if pk in groups]


def _successors(failed: QuerySet) -> QuerySet:
    successors = [pk for pk in failed.values_list("successor", flat=True)[:LOOKED_AT] if pk]
    return DeadLetter.objects.filter(pk__in=successors)


def _left_by_messages(failed: QuerySet) -> QuerySet:
    """The letters of messages that were said again in vain, by their aggregates, which have an index."""
    pairs = list(failed.values_list("business_key", "successor")[:LOOKED_AT])
    ids = [str(successor) for _key, successor in pairs if successor]
    return DeadLetter.objects.filter(business_key__in={key for key, _successor in pairs}, topic_id__in=ids)


def newest(batch: ReplayBatch) -> list[ReplayItem]:
    """A few letters whose turn has come: those that failed, were refused, or are on their way first."""
    items: list[ReplayItem] = []
    for state in ("failed_again", "refused", "requeued", "verified"):
        if len(items) < NEWEST and getattr(batch, state):
            items += ReplayItem.objects.of(batch).filter(state=state).order_by("-letter")[: NEWEST - len(items)]
    return items


class Preview(NamedTuple):
    """A letter or message of a preview, and of an edit its field before and after, as far as its reader may see it."""

    row: DeadLetter | OutboxMessage
    before: str = ""
    after: str = ""


def samples(batch: ReplayBatch, sight: Visibility, mine: bool) -> list[Preview]:
    """Of a preview: the oldest letters or messages that it would act on."""
    if batch.state != "previewed" or not batch.eligible:
        return []
    items = ReplayItem.objects.of(batch).filter(state="eligible").oldest_first()
    ids = list(items.values_list("letter", flat=True)[:SAMPLES])
    if batch.verb in OF_MESSAGES:
        return [Preview(message) for message in OutboxMessage.objects.among(ids).defer("payload").order_by("pk")]
    letters = DeadLetter.objects.filter(pk__in=ids).defer(*([] if batch.edit else ["payload"]))
    return [_sample(batch, letter, sight, mine) for letter in letters.order_by("pk")]


def _sample(batch: ReplayBatch, letter: DeadLetter, sight: Visibility, mine: bool) -> Preview:
    if not batch.edit:
        return Preview(letter)
    values = before_and_after(letter, FieldChange.of(batch.edit), shown=sight.shown, mine=mine)
    return Preview(letter, *(f"{value[:LONGEST_VALUE]}…" if len(value) > LONGEST_VALUE else value for value in values))


def change_in_words(batch: ReplayBatch, *, shown: bool) -> str:
    """What an edit does to each letter, without its values unless they are `shown`; empty for other verbs."""
    return FieldChange.of(batch.edit).words(shown=shown)[:LONGEST_VALUE] if batch.edit else ""


def is_author(user: AbstractUser | AnonymousUser, batch: ReplayBatch) -> bool:
    """Whether this person has typed the change of an edit. The trail says it: `user` is whoever confirms the batch."""
    about = OperatorAction.objects.filter(subject_type=batch._meta.label_lower, subject_id=str(batch.pk), verb=DRAFT)
    return bool(batch.edit) and about.filter(actor_number=user.pk).exists()


def shown_in_form(chosen: Filter) -> dict[str, object]:
    """What the form of an edit shows of its letters, without hidden values: the newest one, and paths in a sample of them."""
    letters = _sample_of(chosen)
    texts = [masked(letter.json_payload, *mask_of(letter.source)) for letter in letters]
    counts = Counter(path for text in texts for path in dict.fromkeys(paths_in(text)) if len(path) <= LONGEST_PATH)
    return {
        "newest": letters[0] if letters else None,
        "payload": pretty(texts[0]) if texts else "",
        "paths": counts.most_common(MOST_PATHS),
        "sampled": len(letters),
    }


def _sample_of(chosen: Filter) -> list[DeadLetter]:
    """The newest letter, and of the next ones those that are small enough together."""
    ids = list(chosen.letters("edit").newest_first().values_list("pk", flat=True)[:MOST_SAMPLED])
    sizes = dict(DeadLetter.objects.filter(pk__in=ids).values_list("pk", Length("payload"))) if ids else {}
    total = accumulate(sizes.get(pk) or 0 for pk in ids)
    near = [pk for pk, size in zip(ids, total, strict=True) if pk == ids[0] or size <= MOST_BYTES]
    found = DeadLetter.objects.defer("traceback", "headers").in_bulk(near)
    return [found[pk] for pk in near if pk in found]


def meanwhile(batch: ReplayBatch) -> str:
    """`12 new letters of this cause`, open and behind the cut-off; empty where there are none, or no one cause."""
    group = batch.filter.get("group")
    if group is None or batch.cut_off is None or batch.verb == "restore":
        return ""
    number = DeadLetter.objects.open().of_group(group).filter(pk__gt=batch.cut_off)[: MOST_NEW + 1].count()
    if not number:
        return ""
    new = humanize.plural(number, "new letter", "new letters")
    return f"More than {MOST_NEW} new letters" if number > MOST_NEW else new


def checks(batch: ReplayBatch, oldest: Sequence[Preview]) -> list[tuple[str, str, str]]:
    """(tone, verdict, why) of what to know before the start."""
    if batch.state not in ("previewed", "holding"):
        return []
    blocker = lifecycle.blocker_of(batch)
    line = f"{blocker} of {blocker.requested_by} acts on the same source; this one waits for it." if blocker else ""
    answers = [
        ("warn" if blocker else "ok", "Another batch is at it." if blocker else "No other batch is at it.", line)
    ]
    letters = [one.row for one in oldest if isinstance(one.row, DeadLetter)] if batch.verb == "requeue" else []
    if vain := list(in_vain(letters).values()):
        fact, _, unless = vain[0].partition(". ")
        answers.append(("warn", f"{fact}.", f"{unless} So do {len(vain)} of the {len(letters)} oldest."))
    slow = [source for source, _step, waits in batch.kinds if waits]
    if slow and batch.sends:
        why = f"On their way and not judged: at most {pacing.window_of(batch.rate)} {batch.nouns[1]}. Of one key, one at a time."
        answers.append(("info", "Their effect is awaited.", why))
    return answers


def facts(batch: ReplayBatch, now: datetime) -> list[tuple[str, str]]:
    """Who and what."""
    rate = f"{batch.rate:g} {batch.nouns[1]} a second" if batch.rate else "unlimited"
    rows = [("Asked for by", batch.requested_by), ("Set pinned", clock_and_age(batch.pinned_at, now))]
    rows += [
        (f"{capfirst(batch.nouns[1])} in it", f"{batch.pinned:,}"),
        ("Skipped", f"{batch.skipped:,}"),
        ("Rate", rate),
    ]
    if batch.code:
        rows.append(("Code", batch.code))
    rows += [("Started", clock_and_age(batch.started_at, now)), ("Ended", clock_and_age(batch.finished_at, now))]
    return [*rows, ("After a restart", "goes on where it stopped")]
