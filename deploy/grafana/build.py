"""The Grafana dashboards as code: `python deploy/grafana/build.py` writes them to dashboards/ (pip install '.[dashboards]')."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DashboardLinkType, DataSourceRef

FOLDER = Path(__file__).resolve().parent / "dashboards"
ADMIN = "http://127.0.0.1:8000/admin"  # of `make run`; --admin names yours
WIDTH, HEIGHT = 8, 8  # three panels a row, of 24 columns
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


# -- Queries -------------------------------------------------------------------------------------------------
def per_second(counter: str, where: str = "", by: str = "") -> str:
    """The rate of a counter, over all processes; with `by` one line a value, and `none` at 0 while there is none."""
    labels = f"{{{where}}}" if where else ""
    if not by:
        return f"sum(rate({counter}{labels}[$__rate_interval])) or vector(0)"
    none = f'label_replace(vector(0), "{by.rpartition(", ")[2]}", "none", "", "")'
    return f"sum by ({by}) (rate({counter}{labels}[$__rate_interval])) or on() {none}"


def gauge(name: str, by: str = "", where: str = "") -> str:
    """The value that is read from the database. Each web process says the same one, so no sum is taken over them."""
    labels = f"{{{where}}}" if where else ""
    return f"max by ({by}) ({name}{labels})" if by else f"max({name}{labels}) or vector(0)"


def quantiles(histogram: str, where: str = "") -> dict[str, str]:
    """Median, 95 and 99 of 100; nothing while nothing was observed."""
    labels = f"{{{where}}}" if where else ""
    rates = f"sum by (le) (rate({histogram}_bucket{labels}[$__rate_interval]))"
    return {name: f"histogram_quantile({part}, {rates})" for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}


def lag(group: str) -> dict[str, str]:
    return {
        "{{topic}}": gauge("spillway_consumer_lag_seconds", "topic", f'group=~".*{group}"')
    }  # behind KAFKA_TOPIC_PREFIX


def letters_open(source: str) -> dict[str, str]:
    """Of sources by a regular expression; `source` is a label of the value alone, so a sum over it counts nothing twice."""
    return {"open": f"sum({gauge('spillway_dead_letters_open', 'source', source)}) or vector(0)"}


# -- Panels --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Panel:
    """One graph, or one number. `queries` by the text of their legend; `page` of the admin says more."""

    title: str
    unit: str
    about: str
    page: str
    queries: Mapping[str, str]
    kind: Literal["graph", "number"] = "graph"
    least: float | None = 0  # None: it may be negative
    most: float | None = None  # 1 for parts of a whole


@dataclass(frozen=True)
class Board:
    """A dashboard; `uid` is its file's name and the end of its address."""

    uid: str
    title: str
    about: str
    panels: Sequence[Panel]


MESSAGES, LETTERS, CHANNELS = "outbox/outboxmessage/", "outbox/deadletter/", "outbox/channelstate/"
POSITIONS, WORKERS, BATCHES = "outbox/watermark/", "outbox/workerprocess/", "buffer/batch/"
ORDERS_PAGE, CUSTOMERS, REPLAYS = "notifications/order/", "throttler/customer/", "outbox/replaybatch/"
BY_CHANNEL = 'channel="email"'
STREAMS = 'stream!~"ledger|messages-in"'

ORDERS = Board("spillway-orders", "Order events", "What clients of the API wait for, and the events their orders promise.", [
    Panel("Write rate", "ops", "Changes of orders a second with the message each promises; repeated answers count, too.",
          ORDERS_PAGE, {"changes": per_second("spillway_order_write_seconds_count")}),
    Panel("Write latency", "s", "A change of an order with its message, from reading to commit: what clients of the API wait for.",
          ORDERS_PAGE, quantiles("spillway_order_write_seconds")),
    Panel("Events sent, by type", "ops", "Messages accepted by the other side, by the event that promised them.",
          MESSAGES, {"{{event_type}}": per_second("spillway_delivery_total", 'outcome="sent"', "event_type")}),
    Panel("From commit to acceptance", "s", "From the writing of a message to its acceptance: how long people wait for their mail.",
          MESSAGES, quantiles("spillway_commit_to_send_seconds")),
    Panel("Messages waiting", "short", "Messages that are not sent yet, counted up to 100,000, and those that a person must decide about.",
          MESSAGES, {"waiting": gauge("spillway_outbox_pending"), "uncertain": gauge("spillway_outbox_held")}),
    Panel("Oldest message that is due", "s", "Of each channel. Above 90 s for two minutes, unless the channel is paused: alert SpillwayOutboxLate.",
          MESSAGES, {"{{channel}}": gauge("spillway_outbox_oldest_pending_seconds", "channel")}),
    Panel("Promises of other services", "ops", "Records of messages-in, by what became of them; parked ones are dead letters.",
          LETTERS, {"{{outcome}}": per_second("spillway_intake_records_total", by="outcome")}),
    Panel("Lag of messages-in", "s", "Seconds since ingest_messages last read the topic to its end. Above 60: alert SpillwayIngestLag.",
          POSITIONS, lag("outbox-intake")),
    Panel("Idempotency keys overdue", "s", "How long the oldest key has outlived its window: the delay of the daily deletion. Above two days: alert SpillwayKeysOverdue.",
          WORKERS, {"overdue": gauge("spillway_idempotency_overdue_seconds")}),
])  # fmt: skip

TRIED = f'{BY_CHANNEL}, outcome!="throttled"'
MAIL = Board("spillway-mail", "E-mail delivery", "Whether mail leaves, how fast, and what stands in its way.", [
    Panel("Send rate, by event", "ops", "Mails that the provider accepted, by the event that promised them.",
          MESSAGES, {"{{event_type}}": per_second("spillway_delivery_total", f'{BY_CHANNEL}, outcome="sent"', "event_type")}),
    Panel("Success rate", "percentunit", "Accepted tries of all tries, less those that the provider put off (429). Below 90 % for five minutes: alert SpillwaySendsFailing.",
          CHANNELS, {"accepted": f'sum(rate(spillway_delivery_total{{{BY_CHANNEL}, outcome="sent"}}[$__rate_interval]))'
                     f" / sum(rate(spillway_delivery_total{{{TRIED}}}[$__rate_interval]))"}, most=1),
    Panel("Send latency", "s", "One call of the channel, from the request to the provider's answer.",
          CHANNELS, quantiles("spillway_delivery_seconds", BY_CHANNEL)),
    Panel("Tries, by outcome", "ops", "Everything that is not sent is tried again, or becomes a dead letter.",
          CHANNELS, {"{{outcome}}": per_second("spillway_delivery_total", BY_CHANNEL, "outcome")}),
    Panel("Failures, by event", "ops", "Tries that were not accepted, by event and outcome. Many permanent ones: alert SpillwayRefusalBurst.",
          LETTERS, {"{{event_type}}, {{outcome}}": per_second("spillway_delivery_total", f'{BY_CHANNEL}, outcome!="sent"', "event_type, outcome")}),
    Panel("Dead letters", "short", "Messages that nobody will try again until a person decides. Ten minutes above 0: alert SpillwayDeadLettersOpen.",
          LETTERS, letters_open('source="outbox"'), "number"),
    Panel("From commit to acceptance", "s", "From the writing of a message to its acceptance: how long people wait for their mail.",
          MESSAGES, quantiles("spillway_commit_to_send_seconds")),
    Panel("Poll duration", "s", "A round of relay_outbox that had work, from claim to result.",
          WORKERS, quantiles("spillway_outbox_poll_seconds")),
    Panel("Claims, by path", "ops", "Messages claimed by the poller and by change capture. The poller much above 5 %: alert SpillwayPollerCarries.",
          MESSAGES, {"{{path}}": per_second("spillway_outbox_claims_total", by="path")}),
    Panel("Channels that stand still", "bool_yes_no", "Breaker open: the other side does not answer. Paused: a person, or a refused account. Closed: either, or told to wait (429). Alerts SpillwayBreakerOpen and SpillwayChannelPaused.",
          CHANNELS, {"{{channel}}, breaker open": gauge("spillway_breaker_open", "channel"),
                     "{{channel}}, paused": gauge("spillway_channel_paused", "channel"),
                     "{{channel}}, closed": gauge("spillway_channel_closed", "channel")}),
    Panel("Stuck messages", "short", "Messages whose lease ran out and that nobody recovered. Five minutes above 0: alert SpillwayOutboxStuck.",
          WORKERS, {"stuck": gauge("spillway_outbox_processing_stuck")}, "number"),
    Panel("Age of what capture has not brought", "s", "The oldest message that Debezium has not brought; 0 where it is not used. Above 5 s: alert SpillwayCaptureLag.",
          POSITIONS, {"age": gauge("spillway_cdc_lag_seconds")}),
    Panel("Legs of captured messages", "s", "Mean seconds until Kafka has the record, the listener has claimed it, it is sent, the result is stored.",
          MESSAGES, {"{{leg}}": "sum by (leg) (rate(spillway_cdc_leg_seconds_sum[$__rate_interval])) / sum by (leg) (rate(spillway_cdc_leg_seconds_count[$__rate_interval]))"
                     ' or on() label_replace(vector(0), "leg", "none", "", "")'}),
    Panel("Webhooks, by verdict", "ops", "Events that the provider reports. Refused ones: alert SpillwayWebhooksRejected.",
          "notifications/webhookevent/", {"{{provider}}, {{verdict}}": per_second("spillway_webhooks_total", by="provider, verdict")}),
    Panel("Webhooks not applied", "short", "Stored events that wait for their message; counted up to 100,000. Alert SpillwayWebhooksOpen.",
          "notifications/webhookevent/", {"waiting": gauge("spillway_webhooks_open")}),
])  # fmt: skip

AGGREGATOR = Board("spillway-aggregator", "Aggregator", "From transfer requests to batches.", [
    Panel("Records, by outcome", "ops", "Records of the streams. Parked ones are dead letters; many late ones: the idle time is too short.",
          "buffer/bufferedevent/", {"{{outcome}}": per_second("spillway_ingest_records_total", by="outcome")}),
    Panel("Lag", "s", "Seconds since ingest_events last read the topic to its end. Above 60: alert SpillwayIngestLag.",
          POSITIONS, lag("buffer-ingest")),
    Panel("Database time of a batch of records", "s", "What one ingested batch costs.",
          WORKERS, quantiles("spillway_ingest_seconds", STREAMS)),
    Panel("Orders waiting", "short", "Orders in open buckets. At BUFFER_HIGH_WATER reading pauses: alert SpillwayBufferFull.",
          "buffer/bucket/", {"{{stream}}": gauge("spillway_buffer_pending_events", "stream")}),
    Panel("Oldest order that waits", "s", "Held warehouses are not counted. Five minutes above the cap: alert SpillwayOldestPending.",
          "buffer/bucket/", {"oldest": gauge("spillway_buffer_oldest_pending_seconds")}),
    Panel("Batches cut, by rule", "ops", "idle: nothing came for a while. cap: waited long enough. size: full. pressure: the buffer is.",
          BATCHES, {"{{reason}}": per_second("spillway_flush_batches_total", by="reason")}),
    Panel("Batches, by the broker's answer", "ops", "failed: tried again, alert SpillwayPublishFailing. refused: a dead letter, alert SpillwayBatchParked.",
          BATCHES, {"{{outcome}}": per_second("spillway_publish_batches_total", by="outcome")}),
    Panel("A round of the flusher", "s", "From claim to result, of rounds with work.",
          WORKERS, quantiles("spillway_flush_seconds")),
    Panel("Dead letters", "short", "Of all streams. Ten minutes above 0: alert SpillwayDeadLettersOpen.",
          LETTERS, letters_open('source!~"ledger|messages-in|outbox|throttler"'), "number"),
])  # fmt: skip

LEDGER = Board("spillway-ledger", "Ledger", "From stock events to movements.", [
    Panel("Records, by outcome", "ops", "applied: counted. duplicate: known already. skipped: no effect. parked: a dead letter.",
          "buffer/inventorytracking/", {"{{outcome}}": per_second("spillway_ledger_movements_total", by="outcome")}),
    Panel("Records applied, by topic", "ops", "What moves stock, and what only names it.",
          "buffer/inventorytracking/", {"{{topic}}": per_second("spillway_ledger_movements_total", 'outcome="applied"', "topic")}),
    Panel("Lag", "s", "Seconds since track_inventory last read the topic to its end. Above 60: alert SpillwayIngestLag.",
          POSITIONS, lag("buffer-track")),
    Panel("Records behind", "short", "Between the position of track_inventory and the end of the log, all partitions of a topic.",
          POSITIONS, {"{{topic}}": 'sum by (topic) (max by (topic, partition) (spillway_consumer_lag_records{group=~".*buffer-track"}))'}),
    Panel("Database time of a batch of records", "s", "What one batch of movements costs.",
          "buffer/inventorystock/", quantiles("spillway_ingest_seconds", 'stream="ledger"')),
    Panel("Dead letters", "short", "Records that moved no stock. Ten minutes above 0: alert SpillwayDeadLettersOpen.",
          LETTERS, letters_open('source="ledger"'), "number"),
])  # fmt: skip

THROTTLER = Board("spillway-throttler", "Throttler", "Each customer at their rate.", [
    Panel("Messages, by way", "ops", "live: within the rate. buffered: waits; counts again when it is drained, expired or purged.",
          CUSTOMERS, {"{{path}}": per_second("spillway_throttler_messages_total", by="path")}),
    Panel("Lag", "s", "Seconds since run_throttler last read notifications-in to its end. Above 60: alert SpillwayIngestLag.",
          POSITIONS, lag("throttler")),
    Panel("Backlog", "short", "Messages that wait for their customer's rate.",
          CUSTOMERS, {"waiting": gauge("spillway_throttler_backlog")}),
    Panel("Oldest message that waits", "s", "Among the lanes that have been read.",
          CUSTOMERS, {"oldest": gauge("spillway_throttler_oldest_seconds")}),
    Panel("Life used", "percentunit", "Of the message nearest to its end. Above 80 %: alert SpillwayThrottlerExpiring.",
          CUSTOMERS, {"used": gauge("spillway_throttler_life_used_ratio")}, most=1),
    Panel("Given up", "ops", "expired: the life was over, on arrival or in the buffer. lost rows: read again from the input.",
          CUSTOMERS, {"expired": per_second("spillway_throttler_expired_total"),
                      "lost rows": per_second("spillway_throttler_lost_rows_total")}),
    Panel("Transactions, by outcome", "ops", "unknown: Kafka did not say within 8 s, alert SpillwayThrottlerUnknown.",
          WORKERS, {"{{outcome}}": per_second("spillway_throttler_transactions_total", by="outcome")}),
    Panel("Transaction time", "s", "From the begin of a transaction to its outcome.",
          WORKERS, quantiles("spillway_throttler_transaction_seconds")),
    Panel("Slow restores in an hour", "short", "Partitions that took more than 30 s from assignment to the first decision: alert SpillwayThrottlerRestore.",
          WORKERS, {"slow": 'sum(increase(spillway_throttler_restore_seconds_count[1h])) - sum(increase(spillway_throttler_restore_seconds_bucket{le="30.0"}[1h])) or vector(0)'},
          "number"),
    Panel("Partitions not read", "short", "Too many of their messages wait for the store: alert SpillwayThrottlerStalled.",
          POSITIONS, {"not read": "sum(max by (partition) (spillway_throttler_stalled)) or vector(0)"}, "number"),
    Panel("Share of the rate of all", "percentunit", "What each process was granted of THROTTLER_OUTPUT_RATE; 0 where there is none.",
          WORKERS, {"{{instance}}": 'max by (instance) (spillway_throttler_output_share) or on() label_replace(vector(0), "instance", "none", "", "")'},
          most=1),
    Panel("Names taken by several", "short", "How many processes have had one name within a day: alert SpillwayThrottlerNameTaken.",
          WORKERS, {"{{owner}}": 'max by (owner) (spillway_throttler_owner_starts) or on() label_replace(vector(0), "owner", "none", "", "")'}),
    Panel("Dead letters", "short", "Messages that make no sense. Ten minutes above 0: alert SpillwayDeadLettersOpen.",
          LETTERS, letters_open('source="throttler"'), "number"),
])  # fmt: skip

DEAD_LETTERS = Board("spillway-letters", "Dead letters", "What waits for a person, why, and what became of it.", [
    Panel("Open", "short", "Letters that wait for a person. Ten minutes above 0: alert SpillwayDeadLettersOpen.",
          LETTERS, {"{{source}}": gauge("spillway_dead_letters_open", "source")}),
    Panel("Written, by reason", "ops", "The rate, by source and reason; the failure groups of the admin say more.",
          "outbox/failuregroup/", {"{{source}}, {{reason}}": per_second("spillway_dead_letters_total", by="source, reason")}),
    Panel("On their way", "short", "Letters that were taken back and whose effect is not proven yet.",
          LETTERS, {"{{source}}": gauge("spillway_dead_letters_requeued", "source")}),
    Panel("Without effect", "short", "Requeued an hour ago or more, and nothing proves that it helped: alert SpillwayDeadLettersWithoutEffect.",
          LETTERS, {"{{source}}": gauge("spillway_dead_letters_overdue", "source")}),
    Panel("Failed again", "short", "Letters that failed again after a requeue: the cause is still there.",
          "outbox/failuregroup/", {"{{source}}": gauge("spillway_dead_letters_failed_again", "source")}),
    Panel("Replay batches", "ops", "Letters that replay batches carried, by outcome.",
          REPLAYS, {"{{outcome}}": per_second("spillway_replay_letters_total", by="outcome")}),
    Panel("Actions not sealed", "s", "Age of the oldest operator action without a seal. Above 600 s: alert SpillwayActionsUnsealed.",
          "outbox/operatoraction/", {"age": gauge("spillway_audit_unsealed_seconds")}),
])  # fmt: skip

PLATFORM = Board("spillway-platform", "Platform", "Workers, Kafka, leases and partitions.", [
    Panel("Processes that answer", "short", "Scrape targets that answer, by job. One that does not: alert SpillwayWorkerDown.",
          WORKERS, {"{{job}}": 'sum by (job) (up{job=~"spillway-.*"})'}),
    Panel("Workers that run", "short", "By what they report to the database.",
          WORKERS, {"{{command}}": gauge("spillway_workers", "command", 'state="runs"')}),
    Panel("Workers that do not", "short", "Dead, failed, silent or hanging, within a day.",
          WORKERS, {"{{state}}": 'sum by (state) (max by (command, state) (spillway_workers{state=~"dead|failed|silent|hangs"}))'}),
    Panel("Read replica", "s", "How far it is behind, by the newest report of a worker in it. Above REPLICA_MAX_LAG_SECONDS the primary answers. 0 without one.",
          WORKERS, {"behind": gauge("spillway_replica_lag_seconds")}),
    Panel("Clocks", "s", "How far a machine's clock is ahead of the database's. More than 2 s, or less than -2 s: alert SpillwayClockOff.",
          WORKERS, {"{{instance}}": gauge("spillway_clock_ahead_seconds", "instance")}, least=None),
    Panel("Notices to people", "ops", "By what the try came to; unsure: it may have arrived.",
          "outbox/subscription/", {"{{outcome}}": per_second("spillway_notices_total", by="outcome")}),
    Panel("Notices that wait", "s", "Age of the oldest that should have gone. Alerts SpillwayNoticesUnsent and SpillwayNotifierMissing.",
          "outbox/subscription/", {"age": gauge("spillway_notices_oldest_unsent_seconds")}),
    Panel("Subscriptions not reached", "short", "Their last try failed.",
          "outbox/subscription/", {"failing": gauge("spillway_notices_subscriptions_failing")}),
    Panel("Lag", "s", "Seconds since the group last read the topic to its end, the worst partition. Above 60: alert SpillwayIngestLag.",
          POSITIONS, {"{{group}}, {{topic}}": gauge("spillway_consumer_lag_seconds", "group, topic")}),
    Panel("Records behind", "short", "Between position and end of the log, all partitions of a group.",
          POSITIONS, {"{{group}}": "sum by (group) (max by (group, topic, partition) (spillway_consumer_lag_records))"}),
    Panel("Partitions stopped", "short", "They wait for --accept-reset: alert SpillwayPartitionStopped.",
          POSITIONS, {"stopped": "sum(max by (group, topic, partition) (spillway_partition_stopped)) or vector(0)"}, "number"),
    Panel("Transactions run again", "ops", "By worker and the database's error code. They count twice in the other counters.",
          WORKERS, {"{{worker}}, {{cause}}": per_second("spillway_transaction_rerun_total", by="worker, cause")}),
    Panel("Batches halved", "ops", "To find a record that the database refuses.",
          LETTERS, {"{{worker}}": per_second("spillway_batch_bisected_total", by="worker")}),
    Panel("Leases", "ops", "recovered: from workers that died or were too slow. lost: a late worker wanted to settle them. Alerts SpillwayClaimsRecovered and SpillwayFenceLost.",
          WORKERS, {"recovered": per_second("spillway_recovered_total"), "lost": per_second("spillway_fence_lost_total")}),
    Panel("Kafka clients replaced", "ops", "After a fatal error, or a message without an answer.",
          WORKERS, {"replaced": per_second("spillway_producer_rebuilt_total")}),
    Panel("Runway of partitions", "d", "Days until the last partition of a table ends. Alerts SpillwayPartitionRunway and SpillwayPartitionRunwayShort.",
          "partitions/", {"{{table}}": "min by (table) (spillway_partition_runway_days)"}),
    Panel("Partitions kept ahead", "d", "Days that rotation keeps ahead, by table.",
          "partitions/", {"{{table}}": gauge("spillway_partition_ahead_days", "table")}),
])  # fmt: skip

BOARDS = (ORDERS, MAIL, AGGREGATOR, LEDGER, THROTTLER, DEAD_LETTERS, PLATFORM)


# -- Grafana's form ------------------------------------------------------------------------------------------
def panel_of(panel: Panel) -> timeseries.Panel | stat.Panel:
    """What the SDK makes a panel of."""
    if panel.kind == "number":
        made: timeseries.Panel | stat.Panel = stat.Panel()
    else:
        legend = (
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
        made = timeseries.Panel().fill_opacity(10).legend(legend).tooltip(tooltip)
    link = dashboard.DashboardLink("Open in the admin").type(DashboardLinkType.LINK)
    made.title(panel.title).description(panel.about).unit(panel.unit).datasource(SOURCE).span(WIDTH).height(HEIGHT)
    made.no_value("none").links([link.url(f"${{admin:raw}}/{panel.page}").target_blank(True)])
    if panel.least is not None:
        made.min(panel.least)
    if panel.most is not None:
        made.max(panel.most)
    for number, (name, query) in enumerate(panel.queries.items()):
        made.with_target(prometheus.Dataquery().expr(query).legend_format(name).ref_id(chr(ord("A") + number)))
    return made


def document(board: Board, admin: str = ADMIN) -> str:
    """The dashboard as JSON; `admin` is the address of Spillway's admin, which a person can change on the page."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags(["spillway"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Spillway").type(DashboardLinkType.DASHBOARDS).tags(["spillway"]).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(dashboard.TextBoxVariable("admin").label("Admin").default_value(admin))
    )
    for panel in board.panels:
        made.with_panel(panel_of(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def main() -> None:
    parser = ArgumentParser(description="Write the dashboards as Grafana's JSON.")
    parser.add_argument("--admin", default=ADMIN, metavar="URL", help=f"address of the admin (default {ADMIN})")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="where to (default: beside this file)")
    options = parser.parse_args()
    for board in BOARDS:
        (options.out / f"{board.uid}.json").write_text(document(board, options.admin.rstrip("/")), encoding="utf-8")
    sys.stdout.write(f"{len(BOARDS)} dashboards in {options.out}\n")


if __name__ == "__main__":
    main()
