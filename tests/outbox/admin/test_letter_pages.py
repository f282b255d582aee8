"""The page of a dead letter: what an older version stored of an error, and who may read it."""

import pytest

from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import (  # noqa: F401 (fixtures)
    _plain_http,
    boss,
    client_with,
    page_of,
    rows,
)

pytestmark = pytest.mark.django_db
ROW = "value too long\nDETAIL:  Failing row contains (ada@example.com)."


def test_the_row_in_an_old_error_needs_the_right_to_see_payloads(boss, rows):  # noqa: F811 (the fixtures)
    DeadLetter.objects.filter(pk=rows.late.pk).update(error=ROW, traceback=f"Traceback\nDataError: {ROW}")
    assert boss.get(page_of(rows.late)).content.decode().count("ada@example.com") == 2
    html = client_with("view_deadletter").get(page_of(rows.late)).content.decode()
    assert "value too long" in html
    assert "ada@" not in html
