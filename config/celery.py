"""The Celery application: beat only schedules, every task calls the function its command calls."""

import os

from celery import Celery
from celery.signals import (
    after_setup_logger,
    beat_init,
    before_task_publish,
    heartbeat_sent,
    task_prerun,
    worker_process_init,
    worker_process_shutdown,
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("spillway", amqp="config.processes.progress:PatientAMQP")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@after_setup_logger.connect
def lines_keep_their_level(**_: object) -> None:
    """Celery's --loglevel, a warning unless it is given, is of all loggers: of ours LOG_LEVEL says it, as everywhere."""
    from config.telemetry import logs

    logs.keep_level()


@heartbeat_sent.connect  # by the worker's own loop, every other second, also while its child runs a long job
@beat_init.connect
@before_task_publish.connect  # by beat, every minute, before it asks the broker
def process_gets_on(**_: object) -> None:
    """Tell a probe so."""
    from config.processes import progress

    progress.touch()


@beat_init.connect
def beat_starts(**_: object) -> None:
    """Rotate when partitions run short, and serve metrics. Imported late: Django is set up only now."""
    from config.processes import alive, beat

    alive.report_until_exit("beat")
    if app.conf.task_always_eager:
        beat.serve_metrics()
    beat.rotate_when_short()


@worker_process_init.connect
@task_prerun.connect
def tasks_run_here(**_: object) -> None:
    """Serve metrics in the process that runs the tasks: a child of the worker, the worker, or beat.

    And give up a session that the server has ended: Celery does so around tasks of a worker, not around those that
    beat runs itself.
    """
    from config.database.retry import drop_lost_sessions
    from config.processes import beat

    beat.serve_metrics()
    drop_lost_sessions()


@worker_process_init.connect
def process_starts(**_: object) -> None:
    """Report that a process of the Celery worker lives; in the child, whose tasks it runs."""
    from config.processes import alive

    alive.report_until_exit("celery_worker")


@worker_process_shutdown.connect
def process_ends(**_: object) -> None:
    """A child of the worker ends without what a process does at its exit."""
    from config.processes import alive
    from config.telemetry import tracing

    alive.end_reports()
    tracing.end()
