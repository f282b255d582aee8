"""Rows as literals: plain where they may be, hexadecimal for a whole column where a backslash is in one of them."""

import uuid

import pytest

from config.database.dialects.vendors import rows_of_literals


def test_numbers_words_and_nothing():
    rows = [(1, "a", None, True, 0.5), (-2, "it's", None, False, -1.5)]
    assert rows_of_literals(rows) == b"(1, 'a', NULL, 1, 0.5), (-2, 'it''s', NULL, 0, -1.5)"
    assert rows_of_literals(rows[:1], "ROW") == b"ROW(1, 'a', NULL, 1, 0.5)"


def test_one_backslash_turns_the_whole_column_into_numerals():
    """Two forms have two collations, and these do not mix in one column."""
    rows = [("a", "plain"), (None, "b"), ("back\\slash", "c")]
    assert rows_of_literals(rows) == (
        b"(_utf8mb4 x'61', 'plain'), (NULL, 'b'), (_utf8mb4 x'6261636b5c736c617368', 'c')"
    )


def test_letters_of_any_script():
    assert rows_of_literals([("ünï 🙂",)]) == "('ünï 🙂')".encode()


def test_columns_of_mixed_numbers_and_texts_keep_each_as_it_is():
    assert rows_of_literals([(1,), ("1",), (None,)]) == b"(1), ('1'), (NULL)"


@pytest.mark.parametrize("value", [uuid.uuid4(), b"bytes", {"a": 1}])
def test_what_has_no_literal_is_refused(value):
    with pytest.raises(TypeError, match="no literals"):
        rows_of_literals([(value,)])


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        rows_of_literals([(1, 2), (1,)])
