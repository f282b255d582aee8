"""What waits: events, buckets, batches, and the sentences about them."""
