"""What a flow says of edited copies of its letters; as it stands here, a flow takes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TakesCopies:
    """The part of a flow that is about copies. A copy is a letter with another payload: `judge` and `take_back` get it."""

    def why_not_edited(self, letter: Any) -> str:
        """Why nobody may edit a copy of this letter, in one sentence; empty where somebody may."""
        return "Its flow takes no edited copies."

    def locked(self, letter: Any) -> Sequence[str]:
        """Paths in its JSON that say what its effect is about; a copy says the same there.

        With a `?` behind it, a path that is missing stays missing.
        """
        return ()

    def identity(self, letter: Any) -> str:
        """What its effect is about, from a payload that the gate lets through; empty where `locked` says it all."""
        return ""

    def faults(self, letter: Any) -> Sequence[str]:
        """What the gate that judges arrivals says against its payload; nothing when it lets it through."""
        return ()
