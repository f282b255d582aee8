"""The changes that no rule of `verify` sees, by table; all others are seen. docs/verify.md says why of each column.

`column=+1` is a number that is one more, `column=null` and `column=now` are times that go and come, `column=text` is
another state, `gone` a deleted row. A "?" means that it is seen in some rows: of other states, or of the other kinds.
"""

BLIND = {
    "buffer.BufferedEvent": (
        "partition_key=+1 partition_key=-1 revision=+1 revision=-1 source_offset=+1 source_offset=-1 "
        "source_partition=+1 source_partition=-1 source_timestamp=+1 source_timestamp=-1 status=claimed? "
        "status=discarded? status=sent? token=+1 token=-1"
    ),
    "buffer.Bucket": (
        "cap_at=now cap_at=null due_at=now first_arrival=now first_arrival=null gone? held=True idle_at=null "
        "last_arrival=null open_count=-1? sequence=+1 sequence=-1 source_partition=+1 source_partition=-1"
    ),
    "buffer.Batch": (
        "attempts=+1 attempts=-1 event_count=+1? event_count=-1? gone? lease_until=now lease_until=null "
        "made_up_at=now output_offset=+1 output_offset=-1 output_partition=+1 output_partition=-1 partition_key=+1 "
        "partition_key=-1 sequence=+1 sequence=-1"
    ),
    "buffer.InventoryLocation": (
        "active=False gone is_default=False source_offset=+1 source_offset=-1 source_partition=+1 "
        "source_partition=-1 source_timestamp=+1 source_timestamp=-1 token=+1 token=-1"
    ),
    "buffer.InventoryItem": (
        "active=False gone source_offset=+1 source_offset=-1 source_partition=+1 source_partition=-1 "
        "source_timestamp=+1 source_timestamp=-1 token=+1 token=-1"
    ),
    "buffer.InventoryStock": "",
    "buffer.InventoryTracking": (
        "payload_hash=+1 payload_hash=-1 source_offset=+1 source_offset=-1 source_partition=+1 source_partition=-1 "
        "source_timestamp=+1 source_timestamp=-1 token=+1 token=-1"
    ),
    "notifications.ApiToken": "expires_at=now full_at=+1 full_at=-1 gone last_used_at=now revoked_at=now",
    "notifications.Delivery": (
        "bounced_at=now bounced_at=null complained_at=now complained_at=null delivered_at=now delivered_at=null "
        "status=accepted status=bounced status=complained status=deferred status=delivered status=rejected"
    ),
    "notifications.Suppression": "gone reason=complaint reason=hard_bounce reason=manual",
    "notifications.Order": "gone? total_amount=+1 total_amount=-1",
    "notifications.OrderEvent": "",
    "notifications.WebhookEvent": (
        "applied_at=null gone kind=accepted kind=bounced kind=complained kind=deferred kind=delivered kind=other "
        "kind=rejected token=+1 token=-1 verdict=ignored verdict=new verdict=no_news verdict=other_recipient "
        "verdict=parked verdict=unknown_message"
    ),
    "outbox.Watermark": (
        "caught_up_at=now caught_up_at=null end_offset=+1 end_offset=-1 gone? next_offset=+1 next_offset=-1 "
        "partition=+1? partition=-1?"
    ),
    "outbox.FlowCounter": (
        "ledger/movements:value=+1 ledger/restored:value=+1 outbox/ambiguous:gone outbox/ambiguous:value=+1 "
        "outbox/ambiguous:value=-1 outbox/buried:gone outbox/buried:value=+1 outbox/buried:value=-1 "
        "outbox/expired:gone outbox/expired:value=+1 outbox/expired:value=-1 outbox/permanent:gone "
        "outbox/permanent:value=+1 outbox/permanent:value=-1 transfer-requests/discarded:gone "
        "transfer-requests/discarded:value=+1 transfer-requests/discarded:value=-1 "
        "slot=+1 slot=-1 transfer-requests/events_sent:gone transfer-requests/events_sent:value=+1 "
        "transfer-requests/events_sent:value=-1"
    ),
    "outbox.FlowMinute": "gone minute=+1 minute=-1 slot=+1 slot=-1 value=+1 value=-1",
    "outbox.JobLease": "gone",
    "outbox.WorkerProcess": (
        "ended_at=now gone missed_at=now moved=+1 moved=-1 pid=+1 pid=-1 round_at=now starts=+1 starts=-1"
    ),
    "outbox.Incident": "episode=+1 episode=-1 over_at=null returns=+1 returns=-1",
    "outbox.Notice": "episode=+1 episode=-1 gone number=+1 number=-1 phase=reminded phase=returned phase=settled phase=test repeat=True said_over=True sent_at=now state=given_up state=sending state=sent state=unsure tried_at=now tries=+1 tries=-1",
    "outbox.Subscription": "digest_minutes=+1 digest_minutes=-1 failing_since=now failures=+1 failures=-1 lease_until=now next_try_at=now sent_at=now tested_at=now urgency=now urgency=watch wakes=False",
    "outbox.ChannelState": (
        "breaker=open cdc_seen_at=now failures=+1 failures=-1 gone opened_at=now paused=True paused_at=now "
        "probe_at=now refused_since=now requeue_since=now tokens_at=now wait_until=now"
    ),
    "outbox.FailureGroup": (
        "hint_at=now hint_at=null ignored_until=now ignored_until=null returned_count=+1 returned_count=-1 "
        "state=acknowledged state=ignored state=new state=open state=regressed state_since=null"
    ),
    "outbox.GroupHour": "arrived=+1 arrived=-1 closed=+1 closed=-1 gone group_id=+1 group_id=-1 hour=+1 hour=-1",
    "outbox.GroupQuota": "gone hour=+1 hour=-1 made=+1 made=-1",
    "outbox.DeadLetter": "gone? requeued_at=now requeued_at=null status=discarded? status=resolved? timestamp=+1 timestamp=-1",
    "outbox.PayloadRevision": "",
    "outbox.ProofRound": "gone oldest_at=now overdue=+1 overdue=-1",
    "outbox.BurialKey": "token=+1 token=-1",
    "outbox.OutboxMessage": (
        "attempts=+1 attempts=-1 lease_until=now? sent_at=now? state=pending? state=uncertain? times_revived=+1 "
        "times_revived=-1 times_uncertain=+1 times_uncertain=-1"
    ),
    "outbox.IdempotencyKey": "token=+1 token=-1",
    "outbox.DeliveryAttempt": (
        "gone number=+1 number=-1 outcome=ambiguous outcome=empty outcome=permanent outcome=sent outcome=transient"
    ),
    "outbox.ReplayBatch": (
        "automatic=True canary=+1 canary=-1 gone? hold_until=now hold_until=null lease_until=now pinned_at=now "
        "pinned_at=null previewed_at=now previewed_at=null promoted_at=now promoted_at=null ramp_from=now "
        "started_at=now started_at=null state=canary? state=cancelled? state=counting? state=done? state=holding? "
        "state=paused? state=previewed? state=running? state=stopped? state=verifying? tokens_at=now "
        "tokens_at=null verb=discard verb=edit? verb=requeue verb=resend? verb=resolve verb=restore"
    ),
    "outbox.ReplayItem": "canary=False canary=True changed_at=now changed_at=null size=+1 size=-1",
    "outbox.Resend": "readdressed=True",
    "outbox.TopicReplay": (
        "already=+1 already=-1 applied=+1 applied=-1 dry_run=False dry_run=True gone lease_until=now looked_at=+1 "
        "looked_at=-1 outside=+1 outside=-1 parked=+1 parked=-1 read=+1 read=-1 slack_seconds=+1 slack_seconds=-1 "
        "started_at=now? state=pending state=running total=+1 total=-1"
    ),
    "outbox.ActionSubject": "action=+1 action=-1 gone",
    "outbox.ActionSeal": "floor=-1",
    "outbox.OperatorAction": "",
    "outbox.OfferedRight": "gone",
    "outbox.SavedView": "gone owner_number=+1 owner_number=-1 shared=True",
    "outbox.ViewerZone": "gone",
    "outbox.SignIn": "gone person=+1 person=-1",
    "throttler.Customer": "gone held=True purge_before=now weight=+1 weight=-1",
    "throttler.Lane": "drained=+1 first=-1 newest=now oldest_at=null waits=+1",
    "throttler.LanePartition": "decided=+1 epoch=+1 epoch=-1 position=+1 position=-1 read=+1 read=-1",
    "throttler.LaneOwner": "gone starts=+1 starts=-1 transactions=False",
    "throttler.OutputDivision": "gone version=+1 version=-1",
    "throttler.CustomerPeriod": (
        "backlog=+1 backlog=-1 buffered=+1 buffered=-1 drained=+1 drained=-1 expired=+1 expired=-1 gone live=+1 "
        "live=-1 partition=+1 partition=-1"
    ),
    "throttler.OverflowMessage": (
        "expires_at=now gone? notification_hash=+1 notification_hash=-1 offset=+1? offset=-1? partition=+1? "
        "partition=-1?"
    ),
}
# Tables of Django and of its libraries, which belong to no flow.
FOREIGN = {"admin", "auth", "axes", "contenttypes", "sessions"}
