"""python -m tests.bench.outbox.post_office COUNT BATCH LOG: django-post_office drains its queue into a backend that does nothing.

LOG is its LOG_LEVEL: 2, the default, writes a row for each mail sent, as we do; 0 writes none.
"""

from __future__ import annotations

import sys
import time

from config.environment.web import DATABASES

__all__ = ["DATABASES"]
SECRET_KEY = "bench"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "post_office"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
LOGGING_CONFIG = None
POST_OFFICE = {"BACKENDS": {"default": "django.core.mail.backends.dummy.EmailBackend"}}


def main(count: int, size: int, log: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from post_office import mail
    from post_office.models import Email

    call_command("migrate", verbosity=0)
    mail.get_batch_size = lambda: size
    Email.objects.all().delete()
    for start in range(0, count, 1000):
        mail.send_many([
            {"sender": "a@example.com", "recipients": ["b@example.com"], "subject": "paid", "message": "x" * 480}
            for _ in range(min(1000, count - start))
        ])  # fmt: skip
    began = time.perf_counter()
    while mail.get_queued().exists():
        mail.send_queued(processes=1, log_level=log)
    print(count / (time.perf_counter() - began))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
