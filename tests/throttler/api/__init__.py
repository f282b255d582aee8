"""Tests of the route of customers."""
