"""What the page of one replay batch says, from preview to proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from config.admin import humanize, svg
from config.admin.html import clock_and_age
from config.admin.humanize import pretty
from config.database.clock import database_now
from config.flows import mask_of
from config.telemetry.redaction import masked
from outbox.audit_log.reveal import Visibility
from outbox.groups.models import FailureGroup
from outbox.letters.edits import before_and_after
from outbox.letters.field_changes import FieldChange, paths_in
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.replay_batches import lifecycle, requests, rules
from outbox.replay_batches.models import ReplayBatch, ReplayItem

VERBING = {
    "requeue": "Requeueing",
    "edit": "Editing",
    "discard": "Discarding",
    "resolve": "Resolving",
    "restore": "Restoring",
}
DONE = {
    "requeue": "Requeued",
    "edit": "Edited and requeued",
    "discard": "Discarded",
    "resolve": "Resolved",
    "restore": "Restored",
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
MOST_NEW = 100  # letters that came meanwhile and are counted
LONGEST_VALUE = 300  # characters of a value
MOST_PATHS = 100  # that the form of an edit offers
LOOKED_AT = 1000  # failed letters whose new cause is counted


class BatchStep(NamedTuple):
    """One of the five steps: its word, and whether it is over, current or still to come."""

    word: str
    state: str


def context(batch: ReplayBatch, sight: Visibility) -> dict[str, object]:
    """Everything the templates of one batch show."""
    now, parts = database_now(), parts_of(batch)
    over = (
        batch.state in ("done", "cancelled")
        and not batch.requeued
        and not (batch.state == "cancelled" and batch.eligible)
    )
    return {
        "title": headline(batch, now), "words": words_of(batch), "steps": steps(batch),
        "parts": parts, "bar": bar(batch, parts), "hold_bar": hold_bar(batch, now),
        "chip_state": CHIPS.get(batch.state, batch.state), "chip_word": state_word(batch),
        "live": batch.state != "previewed" and not over,
        "refresh_seconds": 1 if batch.state in MOVING else 5,
        "reasons": sorted(batch.skipped_why.items(), key=lambda pair: -pair[1]),
        "causes": causes(batch), "newest": newest(batch), "checks": checks(batch), "facts": facts(batch, now),
        "done": DONE[batch.verb], "samples": samples(batch, sight), "sight": sight, "change": change_in_words(batch, sight), "meanwhile": meanwhile(batch), "waits": waits_for(batch),
        "restorable": batch.verb == "discard" and batch.state in ("done", "cancelled") and not batch.items_gone_at,
        "remaining": batch.eligible, "share": round(rules.share_of_bad(batch.ring), 1), "judged": len(batch.ring),
        "gauge": gauge(rules.share_of_bad(batch.ring), batch.stop_percent),
        "left": left(batch), "typed_above": requests.TYPED_ABOVE, "size": batch.canary_size,
        "hold": humanize.length(settings.REPLAY_HOLD_SECONDS),
        "items_url": f"{reverse('admin:outbox_replayitem_changelist')}?batch__id__exact={batch.pk}&state=",
    }  # fmt: skip


def words_of(batch: ReplayBatch) -> str:
    return Filter.of(batch.filter).words()


def state_word(batch: ReplayBatch) -> str:
    if batch.state in ("canary", "running"):
        return f"{WORDS.get(batch.state, 'Running')}, {batch.percent:.0f} %"
    return WORDS.get(batch.state, "")


def headline(batch: ReplayBatch, now: datetime) -> str:
    """What it does or did, with the one number that matters."""
    letters = humanize.plural(batch.to_act_on, "letter", "letters")
    if batch.state == "counting":
        return "Counting the letters" if not batch.pinned_at else f"Asking about {batch.pinned:,} letters"
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
    done = "verified" if batch.sends else DONE[batch.verb].lower()
    named = [("ok", done, batch.verified)]
    if batch.sends:
        named += [("info", "taken back, not yet verified", batch.requeued), ("bad", "failed again", batch.failed_again)]
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
    """`about 3 min left`, by the rate; empty where there is none."""
    if batch.rate is None or not batch.eligible or batch.state not in ("previewed", "holding", "canary", "running"):
        return ""
    return (
        f"about {humanize.length(max(1, batch.eligible / batch.rate), coarse=True)} at {batch.rate:g} letters a second"
    )


def causes(batch: ReplayBatch) -> list[tuple[FailureGroup, int]]:
    """The groups of the letters that failed again, of the newest thousand; the most frequent first."""
    if not batch.failed_again:
        return []
    failed = ReplayItem.objects.of(batch).filter(state="failed_again").order_by("-letter")
    successors = [pk for pk in failed.values_list("successor", flat=True)[:LOOKED_AT] if pk]
    counted = Counter(DeadLetter.objects.filter(pk__in=successors).values_list("group_id", flat=True))
    groups = FailureGroup.objects.in_bulk(counted)
    return [(groups[pk], number) for pk, number in counted.most_common(NEWEST) if pk in groups]


def newest(batch: ReplayBatch) -> list[ReplayItem]:
    """A few letters whose turn has come: those that failed, were refused, or are on their way first."""
    items: list[ReplayItem] = []
    for state in ("failed_again", "refused", "requeued", "verified"):
        if len(items) < NEWEST and getattr(batch, state):
            items += ReplayItem.objects.of(batch).filter(state=state).order_by("-letter")[: NEWEST - len(items)]
    return items


class Preview(NamedTuple):
    """A letter of a preview, and of an edit its field before and after, as far as its reader may see it."""

    letter: DeadLetter
    before: str = ""
    after: str = ""


def samples(batch: ReplayBatch, sight: Visibility) -> list[Preview]:
    """Of a preview: the oldest letters that it would act on."""
    if batch.state != "previewed" or not batch.eligible:
        return []
    items = ReplayItem.objects.of(batch).filter(state="eligible").oldest_first()
    letters = DeadLetter.objects.defer(*([] if batch.edit else ["payload"]))
    found = letters.in_bulk(list(items.values_list("letter", flat=True)[:SAMPLES]))
    return [_sample(batch, letter, sight) for _, letter in sorted(found.items())]


def _sample(batch: ReplayBatch, letter: DeadLetter, sight: Visibility) -> Preview:
    if not batch.edit:
        return Preview(letter)
    values = before_and_after(letter, FieldChange.of(batch.edit), shown=sight.shown)
    return Preview(letter, *(f"{value[:LONGEST_VALUE]}…" if len(value) > LONGEST_VALUE else value for value in values))


def change_in_words(batch: ReplayBatch, sight: Visibility) -> str:
    """What an edit does to each letter, without its values until they are revealed; empty for other verbs."""
    return FieldChange.of(batch.edit).words(shown=sight.shown)[:LONGEST_VALUE] if batch.edit else ""


def newest_of(chosen: Filter) -> dict[str, object]:
    """What the form of an edit shows of the newest letter: the payload without its hidden values, and paths into it."""
    letter = chosen.letters("edit").newest_first().first()
    text = masked(letter.payload, *mask_of(letter.source)) if letter else ""
    return {"newest": letter, "payload": pretty(text) if letter else "", "paths": paths_in(text)[:MOST_PATHS]}


def meanwhile(batch: ReplayBatch) -> str:
    """`12 new letters of this cause`, open and behind the cut-off; empty where there are none, or no one cause."""
    group = Filter.of(batch.filter).group
    if group is None or batch.cut_off is None or batch.verb == "restore":
        return ""
    number = DeadLetter.objects.open().of_group(group).filter(pk__gt=batch.cut_off)[: MOST_NEW + 1].count()
    if not number:
        return ""
    new = humanize.plural(number, "new letter", "new letters")
    return f"More than {MOST_NEW} new letters" if number > MOST_NEW else new


def waits_for(batch: ReplayBatch) -> str:
    """Why a batch that runs takes nothing back at this moment, as far as its own numbers tell."""
    if batch.state not in ("canary", "running") or batch.requeued < batch.window or not batch.eligible:
        return ""
    return f"{humanize.plural(batch.requeued, 'letter is', 'letters are')} on their way, the most allowed: waiting for their proof."


def checks(batch: ReplayBatch) -> list[tuple[str, str, str]]:
    """(tone, verdict, why) of what to know before the start."""
    if batch.state not in ("previewed", "holding"):
        return []
    blocker = lifecycle.blocker_of(batch)
    line = (
        f"{blocker} of {blocker.requested_by} has letters of the same source; this one waits for it." if blocker else ""
    )
    answers = [
        ("warn" if blocker else "ok", "Another batch is at it." if blocker else "No other batch is at it.", line)
    ]
    slow = [source for source, _step, waits in batch.kinds if waits]
    if slow and batch.sends:
        why = f"Taken back and not judged: at most {rules.window_of(batch.rate)} letters. Of one key, one at a time."
        answers.append(("info", "Their effect is awaited.", why))
    return answers


def facts(batch: ReplayBatch, now: datetime) -> list[tuple[str, str]]:
    """Who and what."""
    rate = f"{batch.rate:g} letters a second" if batch.rate else "unlimited"
    rows = [("Asked for by", batch.requested_by), ("Set pinned", clock_and_age(batch.pinned_at, now))]
    rows += [("Letters in it", f"{batch.pinned:,}"), ("Skipped", f"{batch.skipped:,}"), ("Rate", rate)]
    if batch.code:
        rows.append(("Code", batch.code))
    rows += [("Started", clock_and_age(batch.started_at, now)), ("Ended", clock_and_age(batch.finished_at, now))]
    return [*rows, ("After a restart", "goes on where it stopped")]
