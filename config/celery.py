"""The Celery application: beat only schedules, every task calls the function its command calls."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("spillway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
