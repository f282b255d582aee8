"""What the parcels of Acme add."""

from collections.abc import Mapping
from typing import Any

from spillway_ext import SpillwayApp

TOPICS = ("parcel-scans", "depot-digests", "points-earned")


class Acme(SpillwayApp):
    name = "acme"
    verbose_name = "Acme parcels"
    api = "1.0"
    prefix = "ACME_"
    streams = {
        "parcel-scans": {
            "CLASS": "acme.parcels.Scans",
            "TOPIC": "parcel-scans",
            "OUTPUT": "depot-digests",
            "IDLE_SECONDS": 3,
            "CAP_SECONDS": 15,
        }
    }
    movements = {
        "points-earned": {
            "EFFECT": "acme.points.earned",
            "REFERENCES": ["earning_id"],
            "LOCKED": ["earning_id"],
            "READABLE": ["earning_id", "points"],
            "WORDS": {"stock": "balance", "quantity": "points", "stocktake": "correction", "reference": "Earning"},
        }
    }
    topics = {name: {"partitions": 3} for name in TOPICS}
    channels = {"pigeon": "acme.pigeon.Pigeon"}
    schedule = {"count-depots": {"task": "acme.tasks.count_depots", "schedule": 3600.0}}
    flows = ["acme.flow.Depots"]
    api_routers = ["acme.api.router"]
    partitions = ["acme.partitioned.VISITS"]
    sweeps = ["acme.models.sweep_notes"]
    roles = {"Depot desk": ["view", "acme.view_depotnote"], "Operator": ["acme.change_depotnote"]}
    urls = "acme.urls"

    @classmethod
    def settings(cls, env: Any) -> Mapping[str, object]:
        return {"ACME_KEEP_DAYS": env.integer("ACME_KEEP_DAYS", 10, least=1, most=99)}
