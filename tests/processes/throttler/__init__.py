"""Throttlers as processes."""
