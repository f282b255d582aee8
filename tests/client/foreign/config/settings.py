"""Its database is in BILLING_DATABASE, as Spillway writes addresses; SPILLWAY_CLIENT is in CLIENT, as JSON."""

import json
import os
from urllib.parse import unquote, urlsplit

SECRET_KEY = "not-a-secret" * 5
INSTALLED_APPS = ["notifications", "spillway_client"]
USE_TZ = os.environ.get("WITH_ZONES", "1") == "1"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

place = urlsplit(os.environ["BILLING_DATABASE"])
KINDS = {"postgres": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}
DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{KINDS[place.scheme]}",
        "NAME": place.path[1:],
        "USER": place.username or "",
        "PASSWORD": unquote(place.password or ""),
        "HOST": place.hostname or "",
        "PORT": place.port or "",
    }
}
SPILLWAY_CLIENT = json.loads(os.environ.get("CLIENT", "{}"))
