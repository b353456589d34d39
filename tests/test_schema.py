"""Settings: what they take, however it comes, and the one sentence that refuses the rest."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest
import tyro

from omrl.errors import OmrlError
from omrl.schema import (
    AtLeastOne,
    Count,
    Floats,
    Fraction,
    Layers,
    NotNegative,
    Numbers,
    Positive,
    Size,
    changed,
    read,
    settings,
    with_values,
)


@settings
class Pump:
    """A pump."""

    name: str = "a"
    count: AtLeastOne = 1
    """How many."""
    waits: Count = 0
    size: Size = 2
    rate: Positive = 1e-3
    weight: NotNegative = 0.0
    share: Fraction = 0.5
    hidden: Layers = (3, 4)
    places: Numbers = ()
    bounds: Floats = (-1.0, 1.0)
    kind: Literal["slow", "fast"] = "slow"
    open: bool = False


@settings
class Better(Pump):
    """One more."""

    extra: AtLeastOne = 5

    def __post_init__(self) -> None:
        if self.extra > 10 * self.count:
            raise OmrlError(f"extra is {self.extra}, more than ten for each of {self.count}.")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"rate": 1}, {"rate": 1.0}),
        ({"rate": np.float64(0.5), "count": np.int64(3)}, {"rate": 0.5, "count": 3}),
        ({"open": np.bool_(True)}, {"open": True}),
        ({"hidden": [5, 6], "places": [1], "bounds": [0, 2]}, {"hidden": (5, 6), "places": (1,), "bounds": (0.0, 2.0)}),
        ({"hidden": ()}, {"hidden": ()}),
        ({"share": 0}, {"share": 0.0}),
        ({"kind": "fast"}, {"kind": "fast"}),
    ],
)
def test_what_makes_sense_is_taken(given, kept):
    made = Pump(**given)
    assert {name: getattr(made, name) for name in kept} == kept
    assert all(type(getattr(made, name)) is type(value) for name, value in kept.items())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"count": 0}, "count must be at least 1, not 0."),
        ({"count": "3"}, "count must be a whole number, not '3'."),
        ({"count": True}, "count must be a whole number, not True."),
        ({"count": 1.0}, "count must be a whole number, not 1.0."),
        ({"waits": -1}, "waits cannot be negative, as -1 is."),
        ({"size": 10**9}, "size cannot be as large as 1000000000."),
        ({"rate": 0.0}, "rate must be above 0, not 0.0."),
        ({"rate": float("nan")}, "rate must be finite, not nan."),
        ({"rate": "fast"}, "rate must be a number, not 'fast'."),
        ({"weight": float("inf")}, "weight must be finite, not inf."),
        ({"rate": 1e308}, "rate cannot be as large as 1e+308."),
        ({"bounds": (-1e300, 1.0)}, "bounds cannot be as large as -1e+300."),
        ({"share": 1.5}, "share must lie between 0 and 1, not 1.5."),
        ({"hidden": (4, 0)}, "hidden must be layers of at least 1, not (4, 0)."),
        ({"hidden": (4, 10**9)}, "hidden cannot have a layer as large as 1000000000."),
        ({"hidden": (4,) * 101}, "hidden must be at most 100 layers, not 101."),
        ({"hidden": [1.5]}, "Every value of hidden must be a whole number, not 1.5."),
        ({"hidden": 3}, "hidden must be a list, not 3."),
        ({"bounds": [0, "x"]}, "Every value of bounds must be a number, not 'x'."),
        ({"kind": "medium"}, "kind cannot be 'medium'; it is one of slow, fast."),
        ({"open": 1}, "open must be true or false, not 1."),
        ({"name": 3}, "name must be text, not 3."),
        ({"cuont": 3}, "Pump has no cuont (did you mean 'count'?)."),
        ({"b": 1, "a": 2}, "Pump has no a, b."),
        ({"name": {"{x}": 1}}, "name must be text, not {'{x}': 1}."),
        ({"kind": "x" * 500}, f"kind cannot be '{'x' * 76}...; it is one of slow, fast."),
    ],
)
def test_what_does_not_is_one_sentence(given, sentence):
    with pytest.raises(OmrlError) as error:
        Pump(**given)
    assert str(error.value) == sentence
    with pytest.raises(OmrlError, match=r"mine\.toml: ") as error:
        read(Pump, given, "mine.toml")
    assert str(error.value) == f"mine.toml: {sentence}"


def test_values_by_their_place_are_named_too():
    with pytest.raises(OmrlError, match="count must be at least 1"):
        Pump("b", 0)


def test_what_derives_has_both_fields_and_checks_of_its_own():
    assert Better(count=2, extra=20).name == "a"
    with pytest.raises(OmrlError, match="more than ten for each of 1"):
        Better(extra=11)
    with pytest.raises(OmrlError, match="rate must be above 0"):
        Better(rate=-1.0)
    with pytest.raises(OmrlError, match="more than ten"):
        dataclasses.replace(Better(), extra=11)


def test_they_are_frozen_dataclasses_and_flags():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pump().count = 3
    assert [field.name for field in dataclasses.fields(Better)][-1] == "extra"
    found = tyro.cli(Better, args=["--count", "4", "--hidden", "5", "6", "--open"])
    assert found == Better(count=4, hidden=(5, 6), open=True)


def test_changes_are_checked_and_unchecked_ones_are_not():
    assert changed(Pump(), {"count": 3}, "pump").count == 3
    with pytest.raises(OmrlError, match="pump has no colour"):
        changed(Pump(), {"colour": 3}, "pump")
    marker = object()
    other = with_values(Pump(count=3), {"rate": marker})
    assert other.rate is marker and other.count == 3 and Pump().rate == 1e-3


def test_a_table_whose_keys_are_no_names_is_one_sentence():
    with pytest.raises(OmrlError, match="is no table of Pump"):
        read(Pump, {3: 4}, "mine.toml")
