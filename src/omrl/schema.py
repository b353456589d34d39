"""Settings: typed, frozen, and refused in one sentence where they make no sense.

    @settings
    class CloningConfig(MetaConfig):
        step_size: Positive = 1e-3

A class of settings is a dataclass whose values are checked however they come: as Python values, as flags, or from TOML
and JSON by `read`. Where a number may lie is part of its type. Nothing is guessed: "3" and true are no numbers, and an
unknown name is an error. pydantic does the checking.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from omrl.errors import OmrlError, did_you_mean
from omrl.words import is_text, shortened

T = TypeVar("T")
Number = TypeVar("Number", int, float)

# Dimensions and numbers of learners beyond this are no plan, but a damaged file.
LARGEST = 1_000_000
LARGEST_DECIMAL = 1e30
# And so are networks of more layers.
MOST_LAYERS = 100
# Threads, sets of rows in a batch, and steps in an update.
MOST = 1024
# Generators take 64 bits, and learners count on from the first one's seed.
LARGEST_SEED = 2**62
# What a value of the wrong type should have been.
WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a table",
}


def _wrong(sentence: str) -> PydanticCustomError:
    # Curly brackets in a value are no places to fill in.
    return PydanticCustomError("range", "{sentence}", {"sentence": sentence})


def _at_least_one(value: int) -> int:
    if value < 1:
        raise _wrong(f"must be at least 1, not {value}")
    return value


def _size(value: int) -> int:
    if not 1 <= value <= LARGEST:
        raise _wrong(f"must be at least 1, not {value}" if value < 1 else f"cannot be as large as {shortened(value)}")
    return value


def _between(least: int, most: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise _wrong(f"must lie between {least} and {most}, not at {shortened(value)}")
        return value

    return check


def _above_zero(value: float) -> float:
    if value <= 0:
        raise _wrong(f"must be above 0, not {value}")
    return value


def _not_negative(value: Number) -> Number:
    if value < 0:
        raise _wrong(f"cannot be negative, as {value} is")
    return value


def _fraction(value: float) -> float:
    if not 0 <= value <= 1:
        raise _wrong(f"must lie between 0 and 1, not {value}")
    return value


def _near_bounds(value: float) -> float:
    if not 0 <= value < 0.5:
        raise _wrong(f"must be at least 0 and below 0.5, not {value}")
    return value


def _layers(value: tuple[int, ...]) -> tuple[int, ...]:
    if min(value, default=1) < 1:
        raise _wrong(f"must be layers of at least 1, not {shortened(value)}")
    if max(value, default=1) > LARGEST:
        raise _wrong(f"cannot have a layer as large as {shortened(max(value))}")
    if len(value) > MOST_LAYERS:
        raise _wrong(f"must be at most {MOST_LAYERS} layers, not {len(value)}")
    return value


def _plain_values(value: dict[str, Any]) -> dict[str, Any]:
    for name, one in value.items():
        try:
            hash(tuple(one) if isinstance(one, list) else one)
        except TypeError:  # tables, and lists in lists
            raise _wrong(f"must be numbers, words and lists of these, not {name} = {shortened(one)}") from None
    return value


AtLeastOne = Annotated[int, AfterValidator(_at_least_one)]
Size = Annotated[int, AfterValidator(_size)]
Seed = Annotated[int, AfterValidator(_between(0, LARGEST_SEED))]
Few = Annotated[int, AfterValidator(_between(0, MOST))]
Several = Annotated[int, AfterValidator(_between(1, MOST))]
Count = Annotated[int, AfterValidator(_not_negative)]
Positive = Annotated[float, AfterValidator(_above_zero)]
NotNegative = Annotated[float, AfterValidator(_not_negative)]
Fraction = Annotated[float, AfterValidator(_fraction)]
NearBounds = Annotated[float, AfterValidator(_near_bounds)]
# Files have lists where Python has tuples.
Floats = Annotated[tuple[float, ...], Field(strict=False)]
Words = Annotated[tuple[str, ...], Field(strict=False)]
Numbers = Annotated[tuple[int, ...], Field(strict=False)]
Changes = Annotated[dict[str, Any], AfterValidator(_plain_values)]
Layers = Annotated[tuple[int, ...], Field(strict=False), AfterValidator(_layers)]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def settings(cls: type[T]) -> type[T]:
    """Make a class of settings: a frozen dataclass that checks its values, whoever makes it."""
    strict = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    checked: type[T] = dataclass(frozen=True, config=strict)(cls)  # type: ignore[assignment]
    make: Callable[..., None] = checked.__init__

    @wraps(make)
    def __init__(self: T, *args: Any, **values: Any) -> None:
        try:
            make(self, *map(_plain, args), **{name: _plain(value) for name, value in values.items()})
        except ValidationError as error:
            raise OmrlError(_sentence(error, cls)) from None
        for item in fields(self):  # type: ignore[arg-type]
            _check_single(item.name, getattr(self, item.name))
            _check_text(item.name, getattr(self, item.name))

    checked.__init__ = __init__  # type: ignore[method-assign,assignment]
    return checked


def read(kind: type[T], values: Mapping[str, object], where: object) -> T:
    """Settings from a table that a file has; a wrong one is named with the file."""
    try:
        return kind(**values)
    except OmrlError as error:
        raise OmrlError(f"{where}: {error}") from None
    except TypeError as error:  # keys that are no names
        raise OmrlError(f"{where} is no table of {kind.__name__} ({error}).") from None


def conform(kind: type, values: T, where: object) -> T:
    """What a file has, as it is, where its types are those of `kind`, such as a TypedDict; other keys may be there."""
    try:
        TypeAdapter(kind).validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] in ("range", "extra_forbidden"):
            wrong = first["msg"] if first["type"] == "range" else "does not belong there"
            raise OmrlError(f"{where}: {place} {wrong}.") from None
        what = WANTED.get(first["type"].removesuffix("_type"), first["msg"][:200])
        raise OmrlError(f"{where}: {place} must be {what}, not {shortened(first['input'])}.") from None
    return values


def changed(config: T, values: Mapping[str, object], whose: str) -> T:
    """A copy with other values, checked."""
    names = [item.name for item in fields(config)]  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - set(names)):
        hint = did_you_mean(unknown[0], names) if len(unknown) == 1 else ""
        raise OmrlError(f"{whose} has no {', '.join(unknown)}{hint}.")
    return replace(config, **values)  # type: ignore[type-var]


def with_values(config: T, values: Mapping[str, object]) -> T:
    """A copy that has other values, unchecked: tensors, say, where a loss is told each learner's own number."""
    changed = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


def _check_single(name: str, value: Any) -> None:
    """Refuse decimals that single precision, in which all is computed, does not have."""
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, float) and abs(one) > LARGEST_DECIMAL:
            raise OmrlError(f"{name} cannot be as large as {one}.")


def _check_text(name: str, value: Any) -> None:
    """Refuse a text that no file can hold, such as a path whose bytes are no UTF-8: it could not be read again."""
    if isinstance(value, str) and not is_text(value):
        raise OmrlError(f"{name} is {shortened(value)!a}, which is no text in UTF-8.")


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def _sentence(error: ValidationError, cls: type) -> str:
    """What is wrong first, in one sentence."""
    found = error.errors(include_url=False)
    names = [item.name for item in fields(cls)]
    unknown = [str(one["loc"][0]) for one in found if one["type"] == "unexpected_keyword_argument"]
    if unknown:
        hint = did_you_mean(unknown[0], names) if len(unknown) == 1 else ""
        return f"{cls.__name__} has no {', '.join(sorted(unknown))}{hint}."
    first = found[0]
    where = [str(part) for part in first["loc"]]
    if where and where[0].isdigit():  # given by its place
        where[0] = names[int(where[0])]
    name, kind, value = (where[0] if where else cls.__name__), first["type"], first["input"]
    if kind == "range":
        return f"{name} {first['msg']}."
    if kind == "finite_number":
        return f"{name} must be finite, not {value}."
    if kind == "literal_error":
        choices = str(first["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
        return f"{name} cannot be {shortened(value)}; it is one of {choices}."
    if kind.startswith("missing"):
        return f"{cls.__name__} needs {name}, which is not given."
    wanted = WANTED.get(kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float"))
    inside = f" of {name}" if len(where) > 1 else ""
    if wanted:
        return f"{'Every value' + inside if inside else name} must be {wanted}, not {shortened(value)}."
    return f"{name} is not right: {first['msg'][:200]}."
