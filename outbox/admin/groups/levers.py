"""The levers on groups, and the form of a group's note and ticket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.db.models.options import Options
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import capfirst

from config.admin.levers import Lever, LeverResult, Operator, operator_of, role_with
from config.admin.pages import LeverState
from config.letters import Refusal
from outbox.groups import levers as groups
from outbox.groups.levers import WORDS, mark_of, write_words
from outbox.groups.models import FailureGroup
from outbox.letters.filters import STARTS, VERBS, Filter
from outbox.letters.levers import resolve_groups
from outbox.letters.models import DeadLetter

# -- The levers on groups, as their page and their list offer them -------------------------------------------
TAKE, MANAGE = "take_failuregroup", "manage_failuregroup"
PAIRED = frozenset({"take", "release", "watch"})
PICTURES = {"requeue": "redo", "edit": "edit", "discard": "ban", "resolve": "tick", "restore": "undo"}
RIGHTS = {
    "bulk_replay": "bulk requeue", "requeue_deadletter": "requeue dead letters",
    "edit_deadletter": "edit and requeue dead letters", "view_payload": "see payloads",
}  # fmt: skip
EDITING = ("bulk_replay", "edit_deadletter", "view_payload")
MOST_OWNERS = 500
RIGHTS_FROM = "django.contrib.auth.backends.ModelBackend"  # the other backend counts failed logins
UNTIL = [
    ("day", "For a day"), ("hour", "For an hour"), ("week", "For 7 days"), ("month", "For 30 days"),
    (groups.DOUBLES, "Until its open letters have doubled"),
]  # fmt: skip


def _group_by_group(act: Callable[..., int]) -> Callable[..., LeverResult]:
    """One that refuses must not hide what became of the others."""

    def each(keys: list[object], operator: Operator, reason: str, *choice: str) -> LeverResult:
        changed, refused = 0, []
        for key in keys:
            try:
                changed += act([key], operator, reason, *choice)
            except Refusal as refusal:
                refused.append(f"{capfirst(str(refusal))}.")
        return LeverResult(changed, refused)

    return each


def owners() -> list[tuple[str, str]]:
    """(key, name) of everybody who may take groups, by name."""
    holders = get_user_model().objects.with_perm(f"outbox.{TAKE}", backend=RIGHTS_FROM)
    staff = holders.filter(is_staff=True)[:MOST_OWNERS]
    named = {str(user.pk): (operator_of(user).name, user.get_username()) for user in staff}
    words = {key: name if name == login else f"{name} ({login})" for key, (name, login) in named.items()}
    return sorted(words.items(), key=lambda pair: pair[1].casefold())


def _assign(keys: list[int], operator: Operator, reason: str, owner: str) -> LeverResult:
    # One of `owners`: the confirmation has looked.
    user = get_user_model().objects.get(pk=owner)
    return LeverResult(groups.assign(keys, operator, reason, operator_of(user)))


def _why_not_taken(group: FailureGroup) -> str:
    if group.owner_name:
        return f"{group.owner_name} has it."
    return "It has no letter to work on."


def _lever(name: str, verb: str, past: str, icon: str, act: Callable[..., int], **more: Any) -> Lever:
    return Lever(
        name=name, verb=verb, past=past, icon=icon, nouns=("group", "groups"), act=_group_by_group(act), **more,
    )  # fmt: skip


def ignored(rows: QuerySet) -> QuerySet:
    return rows.filter(state=FailureGroup.State.IGNORED)


def _shown(name: str, verb: str, icon: str, right: str, harm: bool = False) -> Lever:
    """A lever that has a page of its own: here it is only offered."""
    return Lever(
        name=name, verb=verb, icon=icon, right=right, harm=harm, act=lambda *given: 0, ready=lambda rows: rows,
        why_not=lambda row: "", past="", nouns=("letter", "letters"), promise="", detail="", keep="",
    )  # fmt: skip


def of_letters(request: HttpRequest, group: FailureGroup, opts: Options) -> list[LeverState]:
    """What can be done to all its open letters, by a batch, and to the newest one of them alone."""
    if not group.open_count:
        return []
    draft, number = reverse("admin:outbox_replaybatch_draft"), f"{group.open_count:,}"
    newest = DeadLetter.objects.of_group(group.pk).open().newest_first().values_list("pk", flat=True).first()
    one = reverse("admin:outbox_deadletter_lever", args=["requeue"])
    offered = [
        (_shown("requeue-all", f"Requeue all {number}", "redo", "bulk_replay"), f"{draft}?verb=requeue&group={group.pk}"),
        (_shown("edit-all", f"Edit all {number}", "edit", _needed(request, "edit")), f"{draft}?verb=edit&group={group.pk}"),
        (_shown("try-one", "Try one", "play", "requeue_deadletter"), f"{one}?id={newest}"),
        (_shown("discard-all", f"Discard all {number}", "ban", "bulk_replay", harm=True), f"{draft}?verb=discard&group={group.pk}"),
    ]  # fmt: skip
    at_once = (f"{draft}?verb=requeue", f"{draft}?verb=discard")  # an edit asks first what it is to change
    return [_offer(request, lever, url, opts, posts=url.startswith(at_once)) for lever, url in offered]


def _needed(request: HttpRequest, verb: str) -> str:
    """The right for a batch of this verb; of several the first that this person lacks."""
    rights = EDITING if verb == "edit" else EDITING[:1]
    return next((right for right in rights if not request.user.has_perm(f"outbox.{right}")), rights[0])


def of_filter(request: HttpRequest, chosen: Filter, state: str, opts: Options) -> list[LeverState]:
    """What a replay batch can do to all letters of a list that shows one state; nothing in a state that no verb starts from."""
    draft = reverse("admin:outbox_replaybatch_draft")
    offered = [
        (
            _shown(
                f"{verb}-all",
                f"{verb.capitalize()} all of these",
                PICTURES[verb],
                _needed(request, verb),
                harm=verb == "discard",
            ),
            f"{draft}?{urlencode([('verb', verb), *chosen.fields()])}",
        )
        for verb in VERBS
        if STARTS[verb] == state
    ]
    offers = [_offer(request, lever, url, opts, posts=lever.name != "edit-all") for lever, url in offered]
    return sorted(offers, key=lambda offer: offer.lever.harm)


def _offer(request: HttpRequest, lever: Lever, url: str, opts: Options, *, posts: bool) -> LeverState:
    lacks = {} if lever.allowed(request.user, opts) else {"right": RIGHTS[lever.right], "role": lever.role(opts)}
    return LeverState(lever, url, posts=posts, **lacks)


LEVERS = (
    _lever(
        "take", "Take it", "Took", "person", groups.take, right=TAKE, least=0, keep="Not now", question="Take",
        promise="You are its owner.", detail="The others see that somebody works on it.",
        ready=lambda rows: rows.takeable(), why_not=_why_not_taken,
    ),
    Lever(
        name="assign", verb="Assign", past="Assigned", icon="person", nouns=("group", "groups"), act=_assign,
        right=MANAGE, least=0, keep="Not now", promise="Somebody else is its owner.",
        detail="Whoever has it now is not asked. Note, ticket and hint stay.", choices=owners, choices_label="Owner",
        ready=lambda rows: rows.workable(), why_not=lambda group: "It has no letter to work on, or that owner already.",
    ),
    _lever(
        "release", "Release", "Released", "undo", groups.release, right=TAKE, least=0, keep="Not now",
        promise="It has no owner then.", detail="Note, ticket and hint stay.",
        ready=lambda rows: rows.owned(), why_not=lambda group: "It has no owner.",
    ),
    _lever(
        "resolve", "Resolve", "Resolved", "tick", resolve_groups, right=MANAGE, keep="Leave open",
        promise="Its open letters are resolved. Nothing is sent.",
        detail="They were dealt with elsewhere. A new letter with this cause opens the group again, as regressed.",
        ready=lambda rows: rows.with_open_letters(), why_not=lambda group: "None of its letters is open.",
    ),
    _lever(
        "ignore", "Ignore until", "Ignored", "clock", groups.ignore, right=MANAGE, keep="Not now", question="Ignore",
        promise="It leaves the list of what needs work.",
        detail="Its letters stay open. It comes back at the time, or when its count has doubled.",
        choices=UNTIL, choices_label="Until",
        ready=lambda rows: rows.with_open_letters(), why_not=lambda group: "None of its letters is open.",
    ),
    _lever(
        "watch", "Stop ignoring", "Watching", "eye", groups.watch, right=MANAGE, least=0, keep="Not now",
        promise="It is shown with what needs work again.", detail="Owner and words stay.",
        ready=ignored, why_not=lambda group: "It is not ignored.",
    ),
)  # fmt: skip


# -- The form of a group's words -----------------------------------------------------------------------------
# The note of whoever works on it, its ticket, and what to do about its cause.
NEEDS = {"note": TAKE, "ticket": TAKE, "hint": MANAGE}
SCHEMES = ("https://", "http://")


def may_write(request: HttpRequest) -> set[str]:
    """The words that this user may change."""
    return {name for name, right in NEEDS.items() if request.user.has_perm(f"outbox.{right}")}


def ticket_url(ticket: str) -> str:
    """Where a ticket leads; empty for one that is only a number."""
    return ticket if ticket.startswith(SCHEMES) and not set(ticket) & set(" \t\n\"'<>") else ""


def words_page(request: HttpRequest, group: FailureGroup, context: dict[str, object]) -> HttpResponse:
    """GET shows the form, POST writes what may be written; 403 without any right. What was typed is never lost."""
    allowed = may_write(request)
    given = request.POST if request.method == "POST" else None
    texts = {name: _typed(given, name) if given and name in allowed else getattr(group, name) for name in WORDS}
    problems = {name: _fault(name, text) for name, text in texts.items() if _fault(name, text)}
    theirs = {}
    if given is not None and allowed and not problems:
        try:
            write_words(
                group.pk, {name: texts[name] for name in allowed}, given.get("seen", ""), operator_of(request.user)
            )
        except Refusal as refusal:
            problems["changed"] = str(refusal)
            theirs = {name: getattr(group, name) for name in WORDS if getattr(group, name) != texts[name]}
        else:
            messages.success(request, "Saved.")
            return HttpResponseRedirect(group.url)
    shown = {
        **context, "title": f"Words about: {group}", "group": group, "texts": texts, "problems": problems,
        "theirs": theirs, "allowed": allowed, "seen": mark_of(group), "right": "" if allowed else "take groups",
        "role": role_with(f"outbox.{TAKE}"),
    }  # fmt: skip
    status = 200 if allowed else 403
    return TemplateResponse(request, "admin/outbox/failuregroup/words.html", shown, status=status)


def _typed(given: QueryDict, name: str) -> str:
    # PostgreSQL stores no NUL in a text.
    return given.get(name, "").replace("\r\n", "\n").strip()


def _fault(name: str, text: str) -> str:
    longest = getattr(FailureGroup._meta.get_field(name), "max_length", 0)
    return f"At most {longest:,} characters; it has {len(text):,}." if len(text) > longest else ""
