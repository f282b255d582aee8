"""Correcting a quantity after a stocktake: a movement like any other, with a person and a reason."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from buffer.ledger.models import InventoryStock, InventoryTracking
from buffer.ledger.opening import count_movements
from buffer.ledger.statements import adjust, record
from buffer.ledger.topics.effects import LARGEST_DELTA
from config.admin.levers import Operator
from config.database.clock import database_now
from config.digest import short_hash
from config.fields import IDENTIFIER_LENGTH
from config.flows import Refusal
from outbox.trail import audit


class MadeAlready(Refusal):
    """This adjustment was made, and not as it is asked for now."""


def take_stock(stock_id: str, counted: int, seen: int, adjustment_id: str, operator: Operator, reason: str) -> Adjusted:
    """Correct a stock to what was counted; raises Refusal when it has moved since `seen` was on the screen."""
    with transaction.atomic():
        quantity = InventoryStock.objects.locked([stock_id]).get(stock_id)
        known = InventoryTracking.objects.of_reference("ADJUSTMENT", adjustment_id).exists()
        if quantity is not None and quantity != seen and not known:
            raise Refusal(
                f"It moved from {seen:,} to {quantity:,} while this page was open. Check the count, then confirm again."
            )
        return adjust_stock(stock_id, adjustment_id=adjustment_id, operator=operator, reason=reason, counted=counted)


ADJUSTMENT = "ADJUSTMENT"


@dataclass(frozen=True)
class Adjusted:
    """What an adjustment did; `known` when it had been made before and nothing changed now."""

    delta: int
    quantity: int
    known: bool = False


def adjust_stock(
    stock_id: str,
    *,
    adjustment_id: str,
    operator: Operator,
    reason: str,
    counted: int | None = None,
    delta: int | None = None,
) -> Adjusted:
    """Set a stock to what was `counted`, or change it by `delta`; exactly one of the two.

    Nothing moves the stock between the look at its quantity and the movement. The same `adjustment_id` again
    changes nothing, so a double click is harmless; with another number it is refused. Raises Refusal for what cannot
    be done.
    """
    _refuse_nonsense(adjustment_id, reason, counted, delta)
    with transaction.atomic():
        now = database_now()
        quantity = InventoryStock.objects.locked([stock_id]).get(stock_id)
        if quantity is None:
            raise Refusal(f"stock {stock_id} is not known: import it")
        known = InventoryTracking.objects.of_reference(ADJUSTMENT, adjustment_id).first()
        request = short_hash(f"counted {counted}, delta {delta}".encode())
        if known:
            return _again(known, stock_id, request, delta, quantity)
        change = counted - quantity if counted is not None else delta or 0
        _refuse_result(stock_id, quantity + change, change)
        row = (adjustment_id, stock_id, change, None, None, None, request)
        if not record(("", ADJUSTMENT), [row], "", now):
            raise Refusal(f"adjustment {adjustment_id} is just being made by somebody else")
        adjust({stock_id: change}, now)
        result = f"{change:+d}, now {quantity + change}"
        detail = {"adjustment": adjustment_id, "before": quantity, "delta": change, "counted": counted}
        audit.record(
            operator, "adjust_stock", f"Stock {stock_id}", reason=reason, result=result, detail=detail,
            subject_type="buffer.inventorystock", subject_id=stock_id,
            before={"quantity": quantity}, after={"quantity": quantity + change},
        )  # fmt: skip
        count_movements("adjustment", 1, now)
        return Adjusted(change, quantity + change)


def _refuse_nonsense(adjustment_id: str, reason: str, counted: int | None, delta: int | None) -> None:
    if (counted is None) == (delta is None):
        raise Refusal("say either what was counted or by how much to change the stock")
    if counted is not None and not 0 <= counted <= LARGEST_DELTA:
        raise Refusal(f"counted: {counted} is outside 0 … {LARGEST_DELTA}")
    if delta is not None and not 0 < abs(delta) <= LARGEST_DELTA:
        raise Refusal(f"delta: {delta} is no change within ±{LARGEST_DELTA}")
    if not 0 < len(adjustment_id) <= IDENTIFIER_LENGTH:
        raise Refusal(f"adjustment_id: 1 to {IDENTIFIER_LENGTH} characters")
    if not reason.strip():
        raise Refusal("reason: say why the quantity is corrected")


def _refuse_result(stock_id: str, quantity: int, change: int) -> None:
    if settings.LEDGER_NEGATIVE_STOCK == "park" and quantity < 0 and change < 0:
        raise Refusal(f"stock {stock_id} would become {quantity}, which LEDGER_NEGATIVE_STOCK=park refuses")


def _again(known: InventoryTracking, stock_id: str, request: int, delta: int | None, quantity: int) -> Adjusted:
    # Those of the last release have no hash of what was asked for.
    same = request == known.payload_hash if known.payload_hash else delta in (None, known.delta)
    if known.stock_id != stock_id or not same:
        raise MadeAlready(f"adjustment {known.reference_id} was made already: {known.delta:+d} of {known.stock_id}")
    return Adjusted(known.delta, quantity, known=True)
