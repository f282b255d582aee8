"""Limits: rates, the limiter and the scheduler; pure, in whole microseconds."""
