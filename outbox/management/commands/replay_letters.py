"""Carries out replay batches and looks after requeued letters."""

from threading import Event

from config.processes.worker import Options, WorkerCommand
from outbox.replay_batches.run import BatchWorker


class Command(WorkerCommand):
    help = (
        "Carry out replay batches: count, hold, canary, chunks at their rate, proof of effect. "
        "Any number may run side by side; what a killed one had begun, another one goes on with."
    )

    def work(self, stop: Event, options: Options) -> None:
        BatchWorker(stop).run(once=options["once"], until_idle=options["until_idle"])
