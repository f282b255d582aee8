"""One DATABASE_URL becomes a Django database with the options that correctness here depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

from config.environment.env import BadSetting, split_url

ENGINES = {
    "sqlite": "django_prometheus.db.backends.sqlite3",
    "postgres": "django_prometheus.db.backends.postgresql",
    "postgresql": "django_prometheus.db.backends.postgresql",
    "mysql": "config.database.mysql",
    "mariadb": "config.database.mysql",
}


def database_from_url(url: str, base_dir: Path, idle_transaction_seconds: int = 0) -> dict[str, Any]:
    """`sqlite:///file`, `postgres://user:password@host:port/name`, `mysql://…` or `mariadb://…`.

    The server ends a session that does nothing for so long inside a transaction; 0: it waits.
    """
    url = url or f"sqlite:///{base_dir / 'spillway.sqlite3'}"
    scheme = url.partition(":")[0]
    if scheme not in ENGINES:
        raise BadSetting(f"DATABASE_URL: {scheme!r} is not one of {', '.join(ENGINES)}")
    if scheme != "sqlite":
        split_url("DATABASE_URL", url)
    config = environ.Env.db_url_config(url.replace("mariadb:", "mysql:", 1), engine=ENGINES[scheme])
    if not config.get("NAME"):
        raise BadSetting("DATABASE_URL: names no database")
    config["CONN_HEALTH_CHECKS"] = True
    config.setdefault("CONN_MAX_AGE", 600)
    config["OPTIONS"] = {**_options(scheme, idle_transaction_seconds), **config.get("OPTIONS", {})}
    if scheme == "sqlite":
        # A file, not memory: threads and child processes of the tests must see the same rows.
        config["TEST"] = {"NAME": str(base_dir / "var" / f"test-{Path(config['NAME']).name}")}
        (base_dir / "var").mkdir(exist_ok=True)
    return config


def _options(scheme: str, idle_transaction_seconds: int) -> dict[str, Any]:
    if scheme == "sqlite":
        return {
            # A deferred transaction's second writer fails at once, whatever the timeout.
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536;",
        }
    if scheme in ("mysql", "mariadb"):
        return {
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            # Django stores UTC but leaves the session in the server's zone: NOW() would disagree with every row.
            # An engine without transactions keeps half of one. What errors repeat of a row is found in English only.
            "init_command": "SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,"
            "NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', default_storage_engine = InnoDB, "
            "lc_messages = 'en_US', sql_safe_updates = 0",
            "connect_timeout": 10,
            "idle_transaction_seconds": idle_transaction_seconds,
        }
    return {
        "connect_timeout": 10,
        # All that a database or a role may have set otherwise, and that the driver or our statements rely on.
        "options": "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c standard_conforming_strings=on "
        "-c bytea_output=hex -c extra_float_digits=1 -c default_transaction_isolation=read\\ committed "
        f"-c idle_in_transaction_session_timeout={idle_transaction_seconds}s",
    }
