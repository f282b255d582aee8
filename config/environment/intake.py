"""Who may promise messages in Kafka, and for which channels: the text of MESSAGES_IN, parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from config.environment.env import BadSetting

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
NAME = re.compile(r"[A-Za-z0-9._-]{1,50}")
OFF = "off"

Grants = Mapping[str, Mapping[str, Sequence[str]]]  # topic → producer ("": whoever writes there) → channels


def grants_from_text(text: str) -> Grants:
    """`messages-in=email; messages-in@billing=email,texts` by topic and producer; `off` is none. Raises BadSetting."""
    grants: dict[str, dict[str, Sequence[str]]] = {}
    if text == OFF:
        return grants
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        place, equals, listed = entry.partition("=")
        topic, at, producer = (part.strip() for part in place.partition("@"))
        channels = [name.strip() for name in listed.split(",")]
        if not equals or not TOPIC.fullmatch(topic) or not all(map(NAME.fullmatch, channels)):
            raise BadSetting(f"MESSAGES_IN: {entry!r} is not topic=channel,… or topic@producer=channel,…")
        if at and not NAME.fullmatch(producer):
            raise BadSetting(f"MESSAGES_IN: {entry!r} names no producer of letters, digits and ._- behind the @")
        if producer in grants.setdefault(topic, {}):
            raise BadSetting(f"MESSAGES_IN: {place.strip()} stands twice")
        grants[topic][producer] = channels
    return grants
