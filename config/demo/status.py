"""The lines that a demo shows while it runs, and while it waits for its end."""

from __future__ import annotations

from config.flows import flows


def status_line(room: int = 90) -> str:
    """The headlines of all flows on one line; what finds no room is left out."""
    named = [(flow.headline, figure) for flow in flows() for figure in flow.summary()]
    figures = [f"{name} {number:,}" for headline, (name, number) in named if name in headline]
    while len(line := "   ".join(figures)) > room:
        figures.pop()
    return line


def waiting_line() -> str:
    """What is still in progress in any flow, on one line; empty when nothing is."""
    named = [figure for flow in flows() for figure in flow.waiting()]
    return "   ".join(f"{name} {number:,}" for name, number in named if number)
