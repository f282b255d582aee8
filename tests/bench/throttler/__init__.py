"""What the bench measures of the throttler."""
