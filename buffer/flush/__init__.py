"""Due buckets become batches, and batches leave."""
