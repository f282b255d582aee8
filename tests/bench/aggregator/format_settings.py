"""The settings, with the stream written in BENCH_FORMAT."""

import os

from config.settings import *  # noqa: F403
from config.settings import STREAMS

FORMAT = os.environ["BENCH_FORMAT"]
OPTIONS = {"protobuf": {"message": "tests.bench.aggregator.formats.Request"}}
STREAMS["transfer-requests"] |= {"FORMAT": FORMAT, "FORMAT_OPTIONS": OPTIONS.get(FORMAT, {})}
