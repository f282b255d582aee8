"""What the embedded broker cannot do: its command prints this, skip reasons and documents quote it."""

API_VERSION = "2.3"  # up to which it knows the protocol

LIMITS = {
    "clients": f"its clients need KAFKA_API_VERSION={API_VERSION}, without which they find no broker, and "
    "KAFKA_TRANSACTIONS=off; with KAFKA_SESSION_TIMEOUT_MS=2000 rebalances are short",
    "admin": "no administration API: topics come from --topic, from KAFKA_TOPICS or from their first use, "
    "and cannot be configured or altered",
    "time": "no search by time (offsets_for_times finds nothing) and no LogAppendTime: "
    "a record keeps its producer's timestamp",
    "transactions": "transactions in name only: unfinished and aborted records are visible, "
    "offsets sent with a transaction are lost, an old producer is not fenced",
    "groups": "slow consumer groups: a rebalance lasts the session timeout less one second, members that answer "
    "after their leader are refused, and members with different assignors end the broker",
    "retention": "about 5 MiB a partition are kept, older records are dropped; nothing is compacted or expires by time",
    "memory": "everything is in memory: a restart loses topics, records and committed offsets",
    "security": "no TLS, no SASL, no quotas; it listens on 127.0.0.1 only",
}
