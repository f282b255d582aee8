"""Celery tasks: thin, and each safe when beat runs twice."""

from celery import shared_task

from config.database.clock import database_now
from config.processes.beat import rotate_and_sweep
from outbox.audit_log.hash_chain import SEALED_AT_ONCE, seal
from outbox.bookkeeping.leases import only_one
from outbox.letters.redelivery import look_after
from outbox.workers.start import recover_claims as recover
from outbox.workers.start import relay_round


@shared_task
def rotate_partitions() -> str:
    """Make the months ahead, drop the finished ones behind, sweep what outlived its retention."""
    with only_one("rotate_partitions", 3600) as mine:
        if not mine:
            return "another process is at it"
        plans, swept = rotate_and_sweep()
        failures = [line for plan in plans for line in plan.failures]
        return "; ".join([*failures, f"{len(plans)} tables rotated, {swept} rows swept"])


@shared_task
def recover_claims() -> str:
    """Expired leases back to work."""
    with only_one("recover_claims", 55) as mine:
        return str(recover()) if mine else "another process is at it"


@shared_task
def verify_letters() -> str:
    """Requeued letters whose effect is proven, closed."""
    with only_one("verify_letters", 55) as mine:
        return f"{look_after(database_now())} letters closed" if mine else "another process is at it"


@shared_task
def relay_outbox() -> str:
    """Due messages out, for the case that no relay runs."""
    with only_one("relay_outbox", 55) as mine:
        return f"{relay_round(seconds=50)} moved" if mine else "another process is at it"


@shared_task
def seal_actions() -> str:
    """Seal the operator actions that came since; at most 100,000 at once."""
    with only_one("seal_actions", 55) as mine:
        if not mine:
            return "another process is at it"
        sealed = 0
        for _ in range(50):
            sealed += (number := seal(database_now(), SEALED_AT_ONCE))
            if number < SEALED_AT_ONCE:
                break
        return f"{sealed} actions sealed"
