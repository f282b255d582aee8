"""Real servers for the tests: PostgreSQL, MariaDB, MySQL, Kafka, Connect, Cassandra and a schema registry, each one module behind `Service`."""

import sys

OLDEST = (3, 11)

# Said here, before any module that an older Python could not even read.
if sys.version_info < OLDEST:
    have = f"{sys.version_info[0]}.{sys.version_info[1]}"
    sys.exit(f"Python 3.11 or newer is needed; {sys.executable} is {have} (PYTHON=... names another)")
