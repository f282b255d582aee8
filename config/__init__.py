"""Wiring and plumbing, the lowest layer. It owns no tables and imports no app."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
