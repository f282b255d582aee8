"""Layer 0: wiring and plumbing. Owns no tables and imports no app."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
