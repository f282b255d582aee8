"""The drill about notices to people that do not arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.drills.mail import PAUSE, RESUME
from tests.drills.stage import AgedRows, Stage
from tests.outbox.notices.receiver import receiving

SUBSCRIBE = (
    "from config.database.clock import database_now; from outbox.notices.addresses import seal; "
    "from outbox.notices.models import Subscription; "
    "Subscription.objects.create(name='drill', address=seal('{}'), shown='drill', kinds=['channel'], urgency='watch', "
    "created_at=database_now())"
)
REFUSED = "SELECT 1 FROM outbox_subscription WHERE failures > 0"
AN_HOUR_AGO = (
    "UPDATE outbox_notice SET created_at = created_at - INTERVAL '61' MINUTE",
    "UPDATE outbox_subscription SET failing_since = failing_since - INTERVAL '61' MINUTE",
)


class NoticesUnsent(AgedRows):
    """Who is to be told hears of it with the next try after the service answers again, ten minutes later at most."""

    alerts = ("SpillwayNoticesUnsent",)
    staged = "the service that people are told by answers 503, and has done so for an hour (its rows are aged)"
    workers = (("relay_outbox",), ("notify_people",))
    settings = {"NOTIFY_ALLOWED_HOSTS": "127.0.0.1", "NOTIFY_WINDOW_SECONDS": "5"}

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with receiving() as self.receiver:
            self.receiver.answers = [503] * 1000
            yield

    def fail(self, stage: Stage) -> None:
        url = stage.environment["DATABASE_URL"]
        stage.first_mail()
        stage.platform.manage("shell", "-c", SUBSCRIBE.format(self.receiver.plain))
        stage.platform.manage("shell", "-c", PAUSE)
        wait_for(lambda: databases.rows(url, REFUSED), 120, "a notice that is refused", 1)
        for statement in AN_HOUR_AGO:
            databases.run(url, statement)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the service answers again")
        self.receiver.answers.clear()
        stage.platform.manage("shell", "-c", RESUME)
