"""The rates that settings say; raises BadSetting, which names the setting."""

from __future__ import annotations

from django.conf import settings

from config.environment.env import BadSetting
from throttler.limits.rate import BadRates, Rates, RateWindow, parse_rates


def default_rates() -> Rates:
    """What a customer without a row may send."""
    return _rates("THROTTLER_DEFAULT_RATE")


def output_rate() -> RateWindow | None:
    """What all customers together may send; None: no limit."""
    if not settings.THROTTLER_OUTPUT_RATE:
        return None
    rates = _rates("THROTTLER_OUTPUT_RATE")
    if not rates.plain:
        raise BadSetting("THROTTLER_OUTPUT_RATE: one rate such as 500/s, and not 0")
    return rates.windows[0]


def _rates(name: str) -> Rates:
    try:
        return parse_rates(getattr(settings, name))
    except BadRates as error:
        raise BadSetting(f"{name}: {error}") from None
