"""Numbers and values in sentences."""

from __future__ import annotations


def quantity(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(value: object) -> str:
    """A value as Python writes it; files may hold any."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
