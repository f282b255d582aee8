"""A route of the HTTP API."""

from acme.models import DepotNote
from django.http import HttpRequest
from ninja import Router

router = Router(tags=["depots"])


@router.get("/depots/{depot}/notes", response=list[str], summary="Notes of a depot")
def read_notes(request: HttpRequest, depot: str) -> list[str]:
    return list(DepotNote.objects.filter(depot=depot).values_list("text", flat=True)[:100])
