"""The real Debezium on the real outbox table, configured by the files operators use."""
