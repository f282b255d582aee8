"""Celery's way to run the relay: name the task in beat's schedule, each few seconds, instead of `relay_promises`."""

from __future__ import annotations

import threading

from celery import shared_task

from spillway_client import relay


@shared_task(name="spillway_client.relay_promises", ignore_result=True)
def relay_promises() -> int:
    """Send what is pending; returns how many were sent. One that runs beside it stands by."""
    return relay.relay_promises(threading.Event(), until_idle=0)["sent"]
