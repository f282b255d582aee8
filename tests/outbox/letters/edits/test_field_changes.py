"""One change of one field: its path, what it does to a text, and what is wrong with what a person has typed."""

from __future__ import annotations

import json
from random import Random

import pytest

from config.letters import Refusal
from config.telemetry.redaction import DOTS
from outbox.letters.field_changes import (
    FieldChange,
    Unchanged,
    as_json,
    change_of,
    parse_path,
    paths_in,
    shown_path,
    value_at,
    with_value,
)

TEXT = '{ "to": "a@x.com", "n": 1.50,\n "items": [{"sku": "A", "q": 1}, {"sku": "B"}], "empty": {}, "list": [] }'


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.to", ("to",)),
        ("$.items[0].sku", ("items", 0, "sku")),
        ("$.items[-1]['a name']", ("items", -1, "a name")),
        ('$["a\\"b"][ 3 ]', ('a"b', 3)),
        ("$['it\\'s \"so\"']", ('it\'s "so"',)),
        ("$['*'].ö_1", ("*", "ö_1")),
        ("$['a,b']['c:d']", ("a,b", "c:d")),
        ("$['\\u00e9']", ("é",)),
    ],
)
def test_a_path_is_names_and_indexes(path, steps):
    assert parse_path(path) == steps


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "character 1: a path begins with"),
        ("to", "character 1: a path begins with"),
        ("$", "character 1: “$” is the whole message"),
        ("$.", "character 3: a name"),
        ("$.items[*].sku", "character 9: “*” is all members"),
        ("$.*", "character 3: “*” is all members"),
        ("$..sku", "character 2: “..” may find several"),
        ("$.items[1:2]", "character 10: “:” is a slice"),
        ("$.items[0,1]", "character 10: “,” is several members"),
        ("$.items[?@.q > 1]", "character 9: “?” is a filter"),
        ("$.items[01]", "character 9: between [ and ] stands an index"),
        ("$.items[-0]", "character 9: between"),
        ("$.items[0", "character 9: between"),
        ("$.items[sku]", "character 9: between"),
        ("$.items.0", "character 9: a name"),
        ("$.to ", "character 5: a name"),
        ("$ .to", "character 2: a name"),
        ("$['\\x']", "character 3: an escape"),
        ("$['a\\\"b']", "character 3: an escape"),
        ("$" + ".a" * 300, "at most 500"),
        ("$" + ".a" * 33, "at most 32"),
    ],
)
def test_what_is_no_path_to_one_value_says_where(path, said):
    with pytest.raises(Refusal) as refused:
        parse_path(path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.to", '"a@x.com"'), ("$.n", "1.50"), ("$.items[1]", '{"sku":"B"}'), ("$.items[-2].q", "1"), ("$.items[2]", None),
        ("$.items[-3]", None), ("$.to.x", None), ("$.to[0]", None), ("$[0]", None), ("$.empty", "{}"), ("$.list[0]", None),
        ("$.items.sku", None),
    ],
)  # fmt: skip
def test_a_path_leads_to_one_value_or_nowhere(path, value):
    assert value_at(TEXT, path) == value


def test_of_a_name_that_stands_twice_the_last_is_meant():
    assert value_at('{"a": 1, "\\u0061": 2}', "$.a") == "2"


def apply(verb: str, path: str, new: str = "", old: str = "", **more: bool) -> str:
    return FieldChange(verb, path, new, old, **more).apply(TEXT)


def test_the_rest_of_the_text_stays_as_it_was_written():
    assert apply("set", "$.to", '"b@x.com"') == (
        '{"to":"b@x.com","n":1.50,"items":[{"sku":"A","q":1},{"sku":"B"}],"empty":{},"list":[]}'
    )
    assert value_at(apply("replace_part", "$.to", '"y.org"', '"x.com"'), "$.to") == '"a@y.org"'
    assert value_at(apply("replace", "$.n", "2.0", "1.5"), "$.n") == "2.0"


@pytest.mark.parametrize(
    "path", ["$.to", "$.n", "$.list", "$.items[0]", "$.items[1]", "$.items[0].sku", "$.items[1].sku", "$.items[0].q"]
)
def test_a_removed_field_is_gone_and_nothing_else(path):
    after, wanted = json.loads(apply("remove", path)), json.loads(TEXT)
    steps = parse_path(path)
    around = wanted
    for step in steps[:-1]:
        around = around[step]
    del around[steps[-1]]
    assert after == wanted


def test_a_missing_field_is_added_only_where_that_is_asked_for():
    for path, where in (("$.items[1].q", "items"), ("$.empty.x", "empty"), ("$.new", "new")):
        with pytest.raises(Refusal, match="Nothing is at the path"):
            apply("set", path, "7")
        assert "7" in json.dumps(json.loads(apply("set", path, "7", add=True))[where])
    for path in ("$.items[2]", "$.nothing.x", "$.to.x", "$.items.x", "$.list[0]"):
        with pytest.raises(Refusal, match="Nothing is at the path"):
            apply("set", path, "7", add=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("set", "$.to", "12"), "Its value is a text, the new one is a number"),
        (("set", "$.to", "null"), "the new one is null"),
        (("set", "$.items", "{}"), "Its value is a list, the new one is an object"),
        (("replace", "$.n", '"1"', "1.5"), "Its value is a number, the new one is a text"),
        (("replace_part", "$.n", '"2"', '"1"'), "only a text has parts"),
    ],
)
def test_a_value_never_changes_its_type_unasked(change, said):
    with pytest.raises(Refusal, match=said):
        apply(*change)
    if change[0] != "replace_part":
        assert value_at(apply(*change, other_type=True), change[1]) == change[2]


@pytest.mark.parametrize(
    "change",
    [
        ("set", "$.to", '"a\\u0040x.com"'),
        ("set", "$.items[0]", '{"q":1,"sku":"A"}'),
        ("replace", "$.to", '"c"', '"b"'),
        ("replace", "$.n", "2", "1"),
        ("replace", "$.items[0].q", "2", "true"),
        ("replace_part", "$.to", '"c"', '"z"'),
    ],
)
def test_what_would_not_change_says_so(change):
    with pytest.raises(Unchanged):
        apply(*change)


@pytest.mark.parametrize("text", ["", "nothing", "{", '{"to": NaN2}', "\ud800"])
def test_what_is_no_json_is_not_changed(text):
    with pytest.raises(Refusal, match="no JSON"):
        FieldChange("set", "$.to", '"b"').apply(text)
    assert value_at(text, "$.to") is None


def test_texts_of_any_shape_keep_all_but_one_value():
    rng = Random(4)

    def value(depth: int = 0) -> object:
        kind = rng.randrange(6 if depth < 4 else 4)
        if kind == 4:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind == 5:
            return {rng.choice(["a", "b", 'q"', "ü", "\\", "x.y"]): value(depth + 1) for _ in range(rng.randrange(4))}
        return [rng.randrange(9), 'te"xt\\', None, True][kind]

    def paths(inner: object, path: str = "$"):
        items = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        for step, found in items:
            here = f"{path}[{json.dumps(step)}]"
            yield here
            yield from paths(found, here)

    tried = 0
    for _ in range(1000):
        whole = value()
        text = json.dumps(whole, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        for path in paths(whole):
            tried += 1
            after = json.loads(with_value(text, path, '"NEW"'))
            around, before = after, json.loads(text)
            was = before
            *inner, last = parse_path(path)
            for step in inner:
                around, was = around[step], was[step]
            assert around[last] == "NEW"
            around[last] = was[last]
            assert after == before
    assert tried > 500


# -- what a person has typed -------------------------------------------------------------------------------
def given(**more: str) -> dict[str, str]:
    return {"verb": "set", "path": "$.to", "new": "x", "old": "", "as": "text", "other_type": "", "add": "", **more}


def test_text_and_json_are_told_apart():
    assert change_of(given(new="12"))[0].new == '"12"'
    assert change_of(given(new=" 12 ", **{"as": "json"}))[0].new == "12"
    assert change_of(given(new='{"a": [1, 2]}', **{"as": "json"}))[0].new == '{"a":[1,2]}'
    assert change_of(given(verb="replace_part", old="1", new="", **{"as": "json"}))[0].old == '"1"'


def test_all_that_is_wrong_is_said_at_once():
    change, faults = change_of(given(verb="replace", path="$.a[*]", old="{", new="x", **{"as": "json"}))
    assert change is None
    assert set(faults) == {"path", "old", "new"}
    assert faults["path"].startswith("Character 5: ")
    assert "Character 1: this is no JSON" in faults["new"]
    assert "as" in change_of(given(verb="set", **{"as": ""}))[1]


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"verb": "all"}, "verb"),
        ({"verb": "replace_part"}, "old"),
        ({"verb": "replace", "old": "x"}, "new"),
        ({"new": "x" * 20_001}, "new"),
        ({"new": "NaN", "as": "json"}, "new"),
        ({"new": "", "as": "json"}, "new"),
        ({"new": "[" * 100_000, "as": "json"}, "new"),
    ],
)
def test_what_is_wrong_has_its_field(typed, field):
    change, faults = change_of(given(**typed))
    assert change is None
    assert field in faults


def test_json_says_where_it_is_wrong():
    with pytest.raises(Refusal, match="character 4: this is no JSON"):
        as_json("[1 2]")


def test_only_what_is_asked_for_is_kept():
    removed, _ = change_of(given(verb="remove", new="secret", add="1"))
    assert (removed.new, removed.add) == ("", False)


def test_words_without_values_have_none():
    change = FieldChange("replace", "$['ada@x.com'].to", '"new-secret"', '"old-secret"')
    assert change.words() == f"Replace {DOTS} by {DOTS} at $['{DOTS}'].to"
    assert "secret" not in str(change.without_values())
    assert "ada" not in str(change.without_values())
    assert '"new-secret"' in change.words(shown=True)
    assert shown_path("$.a[0]['b']") == f"$.a[0]['{DOTS}']"
    assert FieldChange.of(change.stored()) == change


def test_paths_of_a_masked_text_are_those_whose_names_may_be_read():
    assert paths_in('{"a":1,"••••":2,"items":[{"sku":"••••"},{"q":[]}]}') == ["$.a", "$.items[0].sku"]
    assert paths_in("••••") == paths_in("1") == []
