"""A drill about time: the clock of one machine is off."""

from __future__ import annotations

from pathlib import Path

from tests.crash.wire import wait_for
from tests.drills.stage import Drill, Plan, Stage

LIBRARY = "faketime/libfaketimeMT.so.1"  # Debian package libfaketime
# The monotonic clock goes on as it is: that of a machine steps with nothing.
BEHIND = {"FAKETIME": "-2d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class ClockOff(Drill):
    """The relay sees no message of today, and loses none: it sends them as soon as its clock is right."""

    alerts = ("SpillwayClockOff", "SpillwayOutboxLate")
    staged = "the machine of the only relay is two days behind"

    def refusal(self, plan: Plan) -> str:
        if plan.url.startswith("sqlite"):
            return "on SQLite program and database are one machine"
        return "" if library() else "libfaketime is not installed (Debian package)"

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        stage.living["relay_outbox"].stop()
        stage.alone["relay_outbox"] = self.wrong = BEHIND | {"LD_PRELOAD": library()}
        stage.start("relay_outbox")

    def mend(self, stage: Stage) -> None:
        stage.doctor(**self.wrong)
        mails = len(stage.sink.accepted)
        stage.say(f"the clock is set; the relay is restarted; {mails} mails have left so far")
        del stage.alone["relay_outbox"]
        stage.living["relay_outbox"].stop()
        stage.start("relay_outbox")
        wait_for(lambda: len(stage.sink.accepted) > mails + 100, 120, "what had waited to leave")


def library() -> str:
    """Where it is; "" where it is not."""
    return next((str(path) for path in Path("/usr/lib").glob(f"*/{LIBRARY}")), "")
