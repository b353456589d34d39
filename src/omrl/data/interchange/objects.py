"""Object arrays of numpy without unpickling them: what is in the file is data, and nothing of it is ever called.

Unpickling runs what a file says. Here its instructions are taken one by one, those that build numbers, words, lists and
numeric arrays are followed, and whatever else a file asks for is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from pickletools import genops
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.errors import OmrlError

# An array of objects takes about a hundred instructions for each row of four.
MAX_INSTRUCTIONS = 5_000_000

_NUMERIC = re.compile(r"b1|[iu][1248]|f[248]")
_ORDERS = ("<", ">", "|", "=")


class _Refused(Exception):
    """What the file asks for and does not get."""


@dataclass
class _Type:
    """A dtype in the making; its byte order comes later."""

    code: str
    order: str = "|"

    def dtype(self) -> np.dtype[Any]:
        if not _NUMERIC.fullmatch(self.code):
            raise _Refused(f"an array of type {self.code!r}")
        return np.dtype((self.order if self.order in "<>" else "=") + self.code)


@dataclass
class ObjectArray:
    """An array in the making, or one of objects: its shape and its items in their order."""

    shape: tuple[int, ...] = ()
    items: list[Any] = field(default_factory=list)
    values: NDArray[Any] | None = None
    """Its values, if it is one of numbers."""


@dataclass(frozen=True)
class _Name:
    """Something of a module, by name alone."""

    module: str
    name: str


_MARK = object()
_MODULES = tuple(f"numpy.{core}.{part}" for core in ("core", "_core") for part in ("multiarray", "numeric"))


def read_objects(path: Path, data: bytes) -> object:
    """What follows the header of an .npy file of objects; arrays of objects come as `ObjectArray`."""
    try:
        # From memory: a file that is asked for as much as it claims to hold takes that much first.
        return _follow(BytesIO(data))
    except _Refused as error:
        raise OmrlError(f"{path} holds {error}, where only numbers and arrays of numbers are read") from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, EOFError) as error:
        raise OmrlError(f"{path} is damaged: its objects cannot be read") from error


def _follow(data: BytesIO) -> Any:
    """Follow the instructions to their end. No step calls itself, so that depth costs no stack."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for count, (instruction, argument, _) in enumerate(genops(data)):
        name = instruction.name
        if count > MAX_INSTRUCTIONS:
            raise _Refused(f"more than {MAX_INSTRUCTIONS:,} objects")
        if name == "STOP":
            return stack.pop()
        if name in _PUSHED:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in ("PROTO", "FRAME"):
            continue
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])
        elif name == "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            what, module = stack.pop(), stack.pop()
            stack.append(_named(module, what))
        elif name in _BUILDERS:
            _BUILDERS[name](stack)
        else:
            raise _Refused(f"the instruction {name}")
    raise ValueError("it does not end")


def _named(module: Any, name: Any) -> _Name:
    known = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
    known |= {(m, n) for m in _MODULES for n in ("_reconstruct", "scalar", "_frombuffer")}
    if (module, name) not in known:
        raise _Refused(f"{str(module)[:60]}.{str(name)[:60]}")
    return _Name(module, name)


def _since_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise ValueError("there is no mark")
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _append(stack: list[Any]) -> None:
    item = stack.pop()
    _list(stack[-1]).append(item)


def _appends(stack: list[Any]) -> None:
    items = _since_mark(stack)
    _list(stack[-1]).extend(items)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _Refused("something that is filled and is no list")
    return value


def _tuple(size: int) -> Callable[[list[Any]], None]:
    def build(stack: list[Any]) -> None:
        items = tuple(stack[-size:])
        if len(items) != size or any(item is _MARK for item in items):
            raise ValueError("there is too little for a tuple")
        del stack[-size:]
        stack.append(items)

    return build


def _reduce(stack: list[Any]) -> None:
    """What a named thing makes of its arguments: one of a handful, built here and not by it."""
    arguments, named = stack.pop(), stack.pop()
    if not isinstance(named, _Name) or not isinstance(arguments, tuple):
        raise _Refused("a call")
    match named.name, arguments:
        case "_reconstruct", (_Name(module="numpy", name="ndarray"), tuple(), bytes()):
            stack.append(ObjectArray())
        case "dtype", (str(code), *_):
            order, code = (code[0], code[1:]) if code[:1] in _ORDERS else ("|", code)
            stack.append(_Type(code, order))
        case "scalar", (_Type() as kind, bytes(data)):
            stack.append(_numbers(data, kind, ()).item())
        case "_frombuffer", (bytes() | bytearray() as data, _Type() as kind, tuple(shape), str(order)):
            stack.append(ObjectArray(shape, values=_numbers(bytes(data), kind, shape, order)))
        case "encode", (str(text), str(coding)) if coding in ("latin1", "latin-1"):
            stack.append(text.encode("latin1"))
        case _:
            raise _Refused(f"a call of {named.module}.{named.name}")


def _build(stack: list[Any]) -> None:
    """The rest of an array or of a dtype."""
    state, made = stack.pop(), stack[-1]
    match made, state:
        case _Type(), (int(), str(order), None, None, None, *_) if order in _ORDERS:
            made.order = order
        case ObjectArray(), (int(), tuple(shape), _Type() as kind, bool(fortran), data):
            made.shape = _shape(shape)
            if kind.code.startswith("O"):
                if fortran and len(shape) > 1:
                    raise _Refused("objects in columns")
                if not isinstance(data, list) or len(data) != math.prod(made.shape):
                    raise ValueError("there are more or fewer objects than its shape says")
                made.items = data
            elif isinstance(data, bytes):
                made.values = _numbers(data, kind, made.shape, "F" if fortran else "C")
            else:
                raise _Refused(f"an array of type {kind.code!r} that is no numbers")
        case _:
            raise _Refused("an object with a state of its own")


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("it is no shape")
    return shape


def _numbers(data: bytes, kind: _Type, shape: tuple[Any, ...], order: str = "C") -> NDArray[Any]:
    """The bytes as an array that shares them; as many as the shape says, whatever it claims."""
    dtype, shape = kind.dtype(), _shape(shape)
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError("there are more or fewer bytes than its shape says")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


_PUSHED = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_BUILDERS: dict[str, Callable[[list[Any]], None]] = {
    "APPEND": _append,
    "APPENDS": _appends,
    "LIST": lambda stack: stack.append(_since_mark(stack)),
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "POP": lambda stack: stack.__delitem__(-1),
    "REDUCE": _reduce,
    "BUILD": _build,
}
