"""One change of one field, named by a JSON path, as it is made in many payloads: parsed, applied to a text, in words. Pure.

A path is a singular query of RFC 9535: `$.items[0].sku`, `$['a name']`. What may find several values is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from django.utils.text import capfirst

from config.admin.humanize import TOKEN, is_json
from config.letters import Refusal
from config.telemetry.redaction import DOTS

# -- Paths ---------------------------------------------------------------------------------------------------
Step = str | int
LONGEST_PATH = 500
DEEPEST = 32  # steps; no gate takes more levels
FIRST = r"A-Za-z_\x80-\ud7ff\ue000-\U0010ffff"
NAME = re.compile(rf"\.([{FIRST}][{FIRST}0-9]*)")
QUOTED = re.compile(r"""\[[ \t\n\r]*(?:'((?:[^'\\\x00-\x1f]|\\.)*)'|("(?:[^"\\\x00-\x1f]|\\.)*"))[ \t\n\r]*\]""")
INDEX = re.compile(r"\[[ \t\n\r]*(0|-?[1-9][0-9]{0,8})[ \t\n\r]*\]")
SEVERAL = {"*": "all members", ":": "a slice", ",": "several members", "?": "a filter"}


def parse_path(text: str) -> tuple[Step, ...]:
    """Names and indexes. Raises Refusal with the position, counted from 1, of what is wrong."""
    if len(text) > LONGEST_PATH:
        raise Refusal(f"it has {len(text):,} characters; a path has at most {LONGEST_PATH}")
    if not text.startswith("$"):
        raise _wrong(0, "a path begins with “$”, as “$.to”")
    if text == "$":
        raise _wrong(0, "“$” is the whole message; name a field of it, as “$.to”")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match, step = _step(text, at)
        steps.append(step)
        at = match.end()
    if len(steps) > DEEPEST:
        raise Refusal(f"it has {len(steps)} steps; a path has at most {DEEPEST}")
    return tuple(steps)


def _step(text: str, at: int) -> tuple[re.Match[str], Step]:
    if match := NAME.match(text, at):
        return match, match[1]
    if match := INDEX.match(text, at):
        return match, int(match[1])
    if match := QUOTED.match(text, at):
        # An apostrophe is escaped in apostrophes only, a quotation mark in quotation marks only.
        quoted = match[2] or '"{}"'.format(match[1].replace("\\'", "'").replace('"', '\\"'))
        try:
            return match, str(json.loads(quoted))
        except ValueError:
            raise _wrong(at + 1, "an escape in the name is none of JSON") from None
    raise _wrong(*_problem(text, at))


def _problem(text: str, at: int) -> tuple[int, str]:
    """What stands where a step was expected, and where exactly."""
    if text.startswith("..", at):
        return at, "“..” may find several values; name one"
    after = re.compile(r"[.\[][ \t\n\r]*").match(text, at)
    next_at = after.end() if after else at
    for sign, words in SEVERAL.items():
        inner = text[next_at:].partition("]")[0]
        if after and (inner.startswith(sign) or (sign in ":," and sign in inner and not inner.startswith(("'", '"')))):
            return next_at + inner.index(sign), f"“{sign}” is {words}; name one value"
    if text.startswith("[", at):
        return next_at, "between [ and ] stands an index, as [0], or a name in quotes, as ['sku']"
    return next_at, "a name, as .sku, or an index, as [0], was expected"


def _wrong(at: int, words: str) -> Refusal:
    return Refusal(f"character {at + 1}: {words}")


# -- Where a path leads in a text ----------------------------------------------------------------------------
# By its tokens, and not by its decoded value: what else stands there stays as it was written.
class Member(NamedTuple):
    """Numbers of tokens: where the member begins (with its name), its value, and what is behind it."""

    start: int
    value: int
    end: int


def _members(words: Sequence[str], opening: int) -> Iterator[tuple[Step, Member]]:
    """Of a list or an object; a name that stands twice comes twice."""
    named = words[opening] == "{"
    closing = "}" if named else "]"
    at, index = opening + 1, 0
    while words[at] != closing:
        name: Step = index
        start = at
        if named:
            word = words[at]
            name = str(json.loads(word)) if "\\" in word else word[1:-1]
            at += 2
        end = _end(words, at)
        yield name, Member(start, at, end)
        at = end + (words[end] == ",")
        index += 1


def _end(words: Sequence[str], at: int) -> int:
    """Behind the value that begins at `at`."""
    depth = 0
    while True:
        word = words[at]
        depth += (word in "{[") - (word in "}]")
        at += 1
        if not depth:
            return at


def _member(words: Sequence[str], opening: int, step: Step) -> Member | None:
    """Of a name that stands twice, the last, as decoders read it."""
    if words[opening] != ("{" if isinstance(step, str) else "["):
        return None
    members = list(_members(words, opening))
    if isinstance(step, int):
        return members[step][1] if -len(members) <= step < len(members) else None
    return next((place for name, place in reversed(members) if name == step), None)


def _opening(words: Sequence[str], steps: Sequence[Step]) -> int | None:
    """Where the list or the object around the last step begins; None where the way there is missing."""
    at = 0
    for step in steps[:-1]:
        place = _member(words, at, step)
        if place is None:
            return None
        at = place.value
    return at


def paths_in(text: str) -> list[str]:
    """The paths of the single values in a JSON text, in its order; of masked names none."""
    paths: list[str] = []

    def look(words: Sequence[str], at: int, path: str) -> None:
        if words[at] not in ("{", "["):
            paths.append(path)
            return
        for step, place in _members(words, at):
            if isinstance(step, int) or (step != DOTS and NAME.fullmatch(f".{step}")):
                look(words, place.value, f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}")

    if is_json(text):
        look(TOKEN.findall(text), 0, "$")
    return [path for path in paths if path != "$"]


def value_at(text: str, path: str) -> str | None:
    """The JSON text of the value at a path, without the spaces between its parts; None where there is none."""
    if not is_json(text):
        return None
    words, steps = TOKEN.findall(text), parse_path(path)
    opening = _opening(words, steps)
    place = None if opening is None else _member(words, opening, steps[-1])
    return "".join(words[place.value : place.end]) if place else None


def with_value(text: str, path: str, value: str) -> str | None:
    """The text with the JSON text `value` at a path, whose last name may be new; None where the way there is missing."""
    words, steps = TOKEN.findall(text), parse_path(path)
    opening = _opening(words, steps)
    if opening is None:
        return None
    place = _member(words, opening, steps[-1])
    return "".join(_set(words, place, value) if place else _added(words, opening, steps[-1], value)) or None


def _set(words: Sequence[str], place: Member, value: str) -> list[str]:
    return [*words[: place.value], value, *words[place.end :]]


def _added(words: Sequence[str], opening: int, name: Step, value: str) -> list[str]:
    """Behind the last member of an object; nothing where it is none."""
    if not isinstance(name, str) or words[opening] != "{":
        return []
    end = _end(words, opening) - 1
    comma = [","] if end > opening + 1 else []
    return [*words[:end], *comma, json.dumps(name, ensure_ascii=False), ":", value, *words[end:]]


def _removed(words: Sequence[str], opening: int, place: Member) -> list[str]:
    """With one of the commas beside it."""
    start, end = place.start, place.end
    if words[end] == ",":
        end += 1
    elif start > opening + 1:
        start -= 1
    return [*words[:start], *words[end:]]


# -- Values, as people type them -----------------------------------------------------------------------------
LONGEST_VALUE = 20_000  # characters
KINDS = {"{": "an object", "[": "a list", '"': "a text", "t": "true or false", "f": "true or false", "n": "null"}


def as_text(typed: str) -> str:
    """The JSON text of a text that somebody typed."""
    return json.dumps(typed, ensure_ascii=False)


def as_json(typed: str) -> str:
    """The JSON text that somebody typed, without the spaces between its values. Raises Refusal with the position."""
    try:
        json.loads(typed, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Refusal(f'character {error.pos + 1}: this is no JSON; a text stands in quotes, as “"EUR"”') from None
    except (ValueError, RecursionError) as error:
        raise Refusal(str(error) if isinstance(error, ValueError) else "it is nested too deep") from None
    return "".join(TOKEN.findall(typed))


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def kind_of(value: str) -> str:
    """Of a JSON text, in words."""
    return KINDS.get(value[0], "a number")


def _same(one: str, other: str) -> bool:
    """Whether two JSON texts say the same; 1 and 1.0 and true are three."""
    return one == other or _normal(one) == _normal(other)


def _normal(value: str) -> str:
    return json.dumps(json.loads(value), sort_keys=True)


# -- The change ----------------------------------------------------------------------------------------------
VERBS = {
    "set": "Set it to a value", "replace": "Replace one value by another",
    "replace_part": "Replace a part of its text", "remove": "Remove the field",
}  # fmt: skip
NOTHING_THERE = "Nothing is at the path."
NO_JSON = "Its payload is no JSON."


class Unchanged(Refusal):
    """The change would leave this payload as it is."""


@dataclass(frozen=True)
class FieldChange:
    """Set, replace or remove one field; `old` and `new` are JSON texts, empty where the verb has none.

    `other_type` allows a value of another type than it had, `add` writes the field where it was missing.
    """

    verb: str
    path: str
    new: str = ""
    old: str = ""
    other_type: bool = False
    add: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> FieldChange:
        """From the JSON of a batch."""
        return cls(**stored)

    def stored(self) -> dict[str, object]:
        return asdict(self)

    def without_values(self) -> dict[str, object]:
        """What may be kept for ever, and what everybody may read."""
        return {"verb": self.verb, "path": shown_path(self.path), "other_type": self.other_type, "add": self.add}

    def typed(self) -> dict[str, str | bool]:
        """As a person types it in the form."""
        values = [self.old, self.new]
        as_text = all(value[:1] in ("", '"') for value in values)
        old, new = (str(json.loads(value)) if as_text and value else value for value in values)
        meant_as = "text" if as_text else "json"
        ticked = {"other_type": self.other_type, "add": self.add}
        return {"change": self.verb, "path": self.path, "old": old, "new": new, "as": meant_as, **ticked}

    def words(self, *, shown: bool = False) -> str:
        """`Set $.to to "ada@example.com"`; without values unless they are `shown`."""
        new, old = (value if shown else DOTS for value in (self.new, self.old))
        path = self.path if shown else shown_path(self.path)
        return {
            "set": f"Set {path} to {new}", "replace": f"Replace {old} by {new} at {path}",
            "replace_part": f"Replace the part {old} by {new} in the text at {path}", "remove": f"Remove {path}",
        }[self.verb]  # fmt: skip

    def apply(self, text: str) -> str:
        """The text after the change, without the spaces between its values. Raises Refusal, or Unchanged."""
        if not is_json(text):
            raise Refusal(NO_JSON)
        words, steps = TOKEN.findall(text), parse_path(self.path)
        opening = _opening(words, steps)
        place = None if opening is None else _member(words, opening, steps[-1])
        if opening is None or place is None:
            return self._where_it_is_missing(words, opening, steps[-1])
        if self.verb == "remove":
            return "".join(_removed(words, opening, place))
        value = "".join(words[place.value : place.end])
        new = self._next_value(value)
        if kind_of(new) != kind_of(value) and not self.other_type:
            raise Refusal(f"Its value is {kind_of(value)}, the new one is {kind_of(new)}.")
        if _same(new, value):
            raise Unchanged("It has this value already.")
        return "".join(_set(words, place, new))

    def _where_it_is_missing(self, words: Sequence[str], opening: int | None, name: Step) -> str:
        if self.verb == "set" and self.add and opening is not None and (text := _added(words, opening, name, self.new)):
            return "".join(text)
        raise Refusal(NOTHING_THERE)

    def _next_value(self, value: str) -> str:
        if self.verb == "replace" and not _same(value, self.old):
            raise Unchanged("It has another value than the one to be replaced.")
        if self.verb != "replace_part":
            return self.new
        if not value.startswith('"'):
            raise Refusal(f"Its value is {kind_of(value)}, and only a text has parts.")
        old, new = str(json.loads(self.old)), str(json.loads(self.new))
        whole = str(json.loads(value))
        if old not in whole:
            raise Unchanged("Its text does not hold the part to be replaced.")
        return as_text(whole.replace(old, new))


def shown_path(path: str) -> str:
    """A path that everybody may read: a name that is no plain word may be a value."""
    return QUOTED.sub(f"['{DOTS}']", path)


def change_of(given: Mapping[str, Any]) -> tuple[FieldChange | None, dict[str, str]]:
    """The change that a person has typed, or what is wrong with it, by field: all of it at once.

    `verb`, `path`, `old`, `new` are texts, `as` is "text" or "json", `other_type` and `add` whether they are ticked.
    """
    verb, faults, values = given["verb"], dict[str, str](), {"old": "", "new": ""}
    if verb not in VERBS:
        faults["verb"] = "Choose what is to be done."
    try:
        parse_path(given["path"])
    except Refusal as refusal:
        faults["path"] = f"{capfirst(str(refusal))}."
    needed = {"set": ["new"], "replace": ["old", "new"], "replace_part": ["old", "new"]}.get(verb, [])
    if needed and verb != "replace_part" and given["as"] not in ("text", "json"):
        faults["as"] = "Choose how the value is meant: as text or as JSON."
    for name in needed:
        try:
            values[name] = _value(given[name], "text" if verb == "replace_part" else given["as"])
        except Refusal as refusal:
            faults[name] = f"{capfirst(str(refusal))}."
    if verb == "replace_part" and not given["old"]:
        faults["old"] = "Type the part that is to be replaced."
    if len(needed) == 2 and not faults.keys() & {*needed} and values["old"] == values["new"]:
        faults["new"] = "It is the same as the old one."
    if faults:
        return None, faults
    add = bool(given["add"]) and verb == "set"
    return FieldChange(verb, given["path"], values["new"], values["old"], bool(given["other_type"]), add), {}


def _value(typed: str, meant_as: str) -> str:
    if len(typed) > LONGEST_VALUE:
        raise Refusal(f"it has {len(typed):,} characters, at most {LONGEST_VALUE:,}")
    return as_json(typed) if meant_as == "json" else as_text(typed)
