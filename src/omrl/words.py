"""Numbers and values in sentences."""

from __future__ import annotations


def quantity(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(value: object) -> str:
    """A value as Python writes it; files may hold any."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def an(noun: str) -> str:
    """`a run`, `an exported policy`."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def is_text(value: str) -> bool:
    """Whether it is made of whole characters: what the system calls a file need not be."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
