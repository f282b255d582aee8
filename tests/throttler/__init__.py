"""Tests of the throttler."""
