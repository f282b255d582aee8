"""What waits: events, buckets, batches, with their queries."""
