"""Services that keep incidents of their own, PagerDuty's kind: how each is told which one a notice is about.

A new one is a line here and one in the tests' `tests/outbox/notices/incident_services.py`; a service that only shows
messages needs nothing, apprise knows it.
"""

from __future__ import annotations

from typing import NamedTuple


class IncidentFields(NamedTuple):
    """How a plugin of apprise is told which incident it is about, and whether that begins (or goes on) or ends."""

    key: str  # the name of its attribute
    goes_on: str  # actions of the plugin
    ends: str
    # What else it is set to, so that a notice is one request about one incident.
    more: dict[str, object] = {}


# By schema. One key for each incident, which what begins it, each reminder and its end have in common.
INCIDENTS = {
    "pagerduty": IncidentFields("dedup", "trigger", "resolve", {"overflow_mode": "truncate"}),  # refuses long summaries
    "incidentio": IncidentFields("dedup", "trigger", "resolve"),
    "ilert": IncidentFields("dedup", "trigger", "resolve"),
    "signl4": IncidentFields("external_id", "trigger", "resolve"),
    # By its urgency; what is only to be watched is no incident there.
    "splunk": IncidentFields("entity_id", "map", "recovery"),
    "opsgenie": IncidentFields("alias", "new", "close"),
}

# By schema: services whose incidents cannot be told apart, and the mode of the plugin that makes them.
WITHOUT_KEY = {
    "betterstack": (
        "incident",
        "Better Stack takes no key for an incident: each reminder and each end would be a new one",
    )
}
