"""Scans of parcels: the newest weight of each parcel of a depot, in the words of Acme."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from spillway_ext import Identifier, Stream


class Parcel(msgspec.Struct):
    parcel_no: Identifier
    weight_g: int = 0


THEIRS = {"order_id": "scan_id", "location_id": "depot", "ordered_at": "scanned_at", "items": "parcels"}


class Scan(msgspec.Struct, rename=THEIRS):
    order_id: Identifier
    location_id: Identifier
    ordered_at: Annotated[datetime, msgspec.Meta(tz=True)]
    items: Annotated[list[Parcel], msgspec.Meta(min_length=1)]


class Scans(Stream):
    message = Scan
    words = {"location_id": "depot", "order_ids": "scan_ids", "items": "parcels"}
    readable = ("scan_id", "depot", "scanned_at", "parcels[].parcel_no", "batch_id", "flushed_at", "scan_ids[]")
    locked = ("scan_id", "depot", "scanned_at")

    def _weights(self, payload: str | None) -> dict[str, int]:
        items = self.gate.decoder.decode(payload).items if payload else ()
        return {parcel.parcel_no: parcel.weight_g for parcel in items}

    def summarise(self, payloads: Iterable[str]) -> list[dict[str, Any]]:
        weights: dict[str, int] = {}
        for payload in payloads:
            weights |= self._weights(payload)
        return [{"parcel_no": number, "weight_g": weights[number]} for number in sorted(weights)]

    def difference(self, new: str, old: str | None, missing: Iterable[str] = ()) -> list[dict[str, Any]]:
        known = self._weights(old)
        changed = {number: weight for number, weight in self._weights(new).items() if known.get(number) != weight}
        return [{"parcel_no": number, "weight_g": changed[number]} for number in sorted(changed)]
