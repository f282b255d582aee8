"""Tracing: off without an endpoint, one clear line when its libraries are missing."""

import importlib.util

import pytest

from config.environment.env import BadSetting
from config.telemetry.tracing import start_tracing


def test_without_an_endpoint_nothing_is_traced(settings):
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = ""
    assert start_tracing() is False


@pytest.mark.skipif(importlib.util.find_spec("opentelemetry") is not None, reason="the extra `otel` is installed")
def test_a_missing_library_names_the_extra(settings):
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://127.0.0.1:4318"
    with pytest.raises(BadSetting, match="OTEL_EXPORTER_OTLP_ENDPOINT.*`otel`"):
        start_tracing()
