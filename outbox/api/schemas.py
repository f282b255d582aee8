"""What routes share, and the OpenAPI document says of each: the key, bodies that allow no unknown field, the refusals."""

from __future__ import annotations

from typing import Annotated

from ninja import Header, Router, Schema
from pydantic import ConfigDict, Field

READ_REFUSALS = frozenset({401, 403, 404, 422, 429, 500, 503})
WRITE_REFUSALS = READ_REFUSALS | {400, 409, 413, 415}

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A key of your own for this change. The same request under it gets the same answer for "
        "OUTBOX_IDEMPOTENCY_DAYS; another body is refused with 422.",
        examples=["b1f7c2d0-5a43-4e0e-9f63-0c1d5b7f8a21"],
    ),
]


class CustomerRouter(Router):
    """A router whose routes admit tokens that send for a customer, too; those of any other refuse them."""


class Input(Schema):
    """Base of request bodies: unknown fields are refused, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid")


class WrongValue(Schema):
    where: str = Field(examples=["body.total_amount"])
    what: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemOut(Schema):
    """RFC 9457."""

    type: str = Field(examples=["/api/docs#illegal_transition"])
    title: str = Field(examples=["The order's state does not allow it"])
    status: int = Field(examples=[409])
    code: str = Field(description="Stable; texts are not.", examples=["illegal_transition"])
    detail: str = Field(examples=["the order is cancelled: pay is not possible"])
    errors: list[WrongValue] | None = None
