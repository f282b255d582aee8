"""What the pages of replay batches say, and what their forms send."""
