"""What a throttler counts, by the names of its topics and paths."""

from prometheus_client import Counter, Histogram

MESSAGES = Counter("spillway_throttler_messages", "Messages by what became of them.", ["path"])
TRANSACTIONS = Counter("spillway_throttler_transactions", "Kafka transactions by their outcome.", ["outcome"])
TRANSACTION_SECONDS = Histogram("spillway_throttler_transaction_seconds", "Time of one Kafka transaction.")
RESTORE_SECONDS = Histogram("spillway_throttler_restore_seconds", "Time to read lanes back from the changelog.")
