"""python -m tests.drills: stage the failure behind an alert, follow its runbook, and see the alert end and `verify` hold."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from tests.crash import databases
from tests.drills.capture import DebeziumDead, HealthyCapture, PollerCarries, SlotLost
from tests.drills.cassandra import CassandraNodeDown
from tests.drills.clock import ClockOff
from tests.drills.data import (
    BatchParked,
    BufferFull,
    FlusherKilled,
    KeysOverdue,
    PoisonFlood,
    RunwayShort,
    TopicRecreated,
)
from tests.drills.failover import DatabaseFailedOver
from tests.drills.galera import GaleraNodeKilled
from tests.drills.healthy import Healthy
from tests.drills.mail import (
    ChannelPaused,
    ProviderDown,
    RecipientsRefused,
    RequeuedInVain,
    WebhooksForged,
    WebhooksUnapplied,
)  # fmt: skip
from tests.drills.notices import NoticesUnsent
from tests.drills.prometheus import installed
from tests.drills.stage import Drill, Plan
from tests.drills.stopped import StoppedWhileAway
from tests.drills.storage import BackupRestored, DiskFull
from tests.drills.throttler import CustomerOverRate, NameTaken, OutcomeUnknown, RestoreSlow, StoreAway
from tests.drills.upgrade import Upgrade
from tests.drills.workers import (
    BeatKilled,
    ConsumerFrozen,
    KafkaDown,
    NotifierKilled,
    RelayKilled,
    RelaySuspended,
    WorkerKilled,
)  # fmt: skip

DRILLS: dict[str, type[Drill]] = {
    "provider-down": ProviderDown,
    "recipients-refused": RecipientsRefused,
    "requeued-in-vain": RequeuedInVain,
    "webhooks-unapplied": WebhooksUnapplied,
    "webhooks-forged": WebhooksForged,
    "worker-killed": WorkerKilled,
    "notifier-killed": NotifierKilled,
    "beat-killed": BeatKilled,
    "relay-killed": RelayKilled,
    "relay-suspended": RelaySuspended,
    "notices-unsent": NoticesUnsent,
    "flusher-killed": FlusherKilled,
    "buffer-full": BufferFull,
    "poison-flood": PoisonFlood,
    "batch-parked": BatchParked,
    "topic-recreated": TopicRecreated,
    "keys-overdue": KeysOverdue,
    "consumer-frozen": ConsumerFrozen,
    "kafka-down": KafkaDown,
    "channel-paused": ChannelPaused,
    "customer-over-rate": CustomerOverRate,
    "store-away": StoreAway,
    "name-taken": NameTaken,
    "outcome-unknown": OutcomeUnknown,
    "restore-slow": RestoreSlow,
    "debezium-dead": DebeziumDead,
    "slot-lost": SlotLost,
    "poller-carries": PollerCarries,
    "runway-short": RunwayShort,
    "database-failed-over": DatabaseFailedOver,
    "disk-full": DiskFull,
    "stopped-while-away": StoppedWhileAway,
    "backup-restored": BackupRestored,
    "clock-off": ClockOff,
    "galera-node-killed": GaleraNodeKilled,
    "cassandra-node-down": CassandraNodeDown,
    "upgrade": Upgrade,
    "healthy": Healthy,
    "healthy-capture": HealthyCapture,
}
HELP = """\
Each step is a line with the time of day. The drill has processes, a database, topics, a mail server and a Prometheus of
its own, and takes them away at the end; the servers themselves it only uses, and never stops.

The rules of deploy/prometheus/alerts.yml wait for minutes before they fire, and so does a drill. --quick 10 divides every
`for:` by ten, in a copy, every window, down to a minute, and the time between two scrapes, down to 5 s; thresholds stay.

  python -m tests.drills --list
  python -m tests.drills --name provider-down --quick 10
  python -m tests.drills --name healthy --minutes 30

Exit code 0: each alert fired and ended, and verify held (healthy: none fired). 1: it did not. 2: it cannot be run here.
"""


def main() -> int:
    arguments = parse()
    if arguments.list:
        for name, drill in DRILLS.items():
            print(f"{name:20} {', '.join(drill.alerts) or 'no alert':50} {drill.staged}")
        return 0
    chosen = databases.named(arguments.database) if arguments.database else databases.known()
    name = next((known for known in ("postgres", "mariadb", "mysql") if known in chosen), next(iter(chosen)))
    plan = Plan(chosen[name], databases.kafka_servers(), arguments.quick, arguments.minutes, arguments.logs)
    drill = DRILLS[arguments.name]()
    if why := refusal(drill, plan):
        print(why, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # asked to stop, it takes everything away, too
    place = "nodes of its own" if drill.own_nodes else name
    print(f"=== {arguments.name} on {place}: {', '.join(drill.alerts) or 'no alert'}", flush=True)
    passed = attempt(drill, plan)
    print(f"{'PASS' if passed else 'FAIL'}: {arguments.name}", flush=True)
    return int(not passed)


def refusal(drill: Drill, plan: Plan) -> str:
    """Why the drill cannot be run here; empty: it can."""
    if drill.watched and not installed():
        return "prometheus is not installed (Debian package prometheus), and PROMETHEUS names none"
    if not plan.servers:
        return "TEST_KAFKA_SERVERS is not set and no broker runs here: make services starts one"
    return drill.refusal(plan)


def attempt(drill: Drill, plan: Plan) -> bool:
    """One drill, with a line a step; what was waited for in vain is a line, too."""
    try:
        return drill.run(plan, lambda text: print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True))
    except AssertionError as error:
        print(f"{time.strftime('%H:%M:%S')}  {error}", flush=True)
        return False


def divisor(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drills", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--name", choices=DRILLS, help="which drill")
    which.add_argument("--list", action="store_true", help="the drills, the alert of each, and what it stages")
    parser.add_argument(
        "--database",
        metavar="URL",
        help="the server (default: the first that runs: postgres, mariadb, mysql; else SQLite)",
    )
    parser.add_argument(
        "--quick",
        type=divisor,
        default=1,
        metavar="N",
        help="rules wait for an Nth of their time (default 1: as they are)",
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, metavar="M", help="how long healthy traffic is watched (default 5)"
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of the processes there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
