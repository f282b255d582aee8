"""Tests of who is told of what, when, and once."""
