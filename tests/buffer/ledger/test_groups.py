"""Letters of the ledger by cause: which stock it was makes no group of its own."""

import pytest

from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import lines, paid, record, write

pytestmark = pytest.mark.django_db


def test_unknown_stocks_are_one_group_whatever_they_are_called():
    names = ["ACME", "BOLT", "is not", "known", "“A”", 'A "quoted" one', "stock", "x"]
    write(*[record(paid(f"S{number}", **{name: 1})) for number, name in enumerate(names)])
    group = FailureGroup.objects.get()
    assert group.open_count == len(names)
    assert group.title == "Unknown stock: stock … is not known: import it, or set LEDGER_UNKNOWN_STOCK=create"
    assert {
        name for name in names if f"stock {name} is" in " ".join(DeadLetter.objects.values_list("error", flat=True))
    }


def test_quantities_beyond_a_column_are_one_group():
    most = 2**31 - 1
    for number, name in enumerate(["ACME", "BOLT"]):
        write(record(("PAYMENT_SUCCESS", {"saleOrderId": f"S{number}", "merchantId": "M", "items": [
            *lines(**{name: most}), *lines(**{name: most})]})))  # fmt: skip
    assert FailureGroup.objects.get().open_count == 2
