"""Rules that the sources keep: where imports stand, what signatures say, and that the page on rooms is about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "omrl"
# Functions that import something themselves, and why.
LOCAL_IMPORTS = {
    "algorithms/__init__.py:_checked": "presets are read and listed without torch",
    "behaviour/collect.py:run": "matplotlib is an extra",
    "data/dataset.py:MetaDataset.save": "the writer gives back datasets, and a dataset is saved by the writer",
    "data/dataset.py:MetaDataset.to": "logs are imported, checked and exported without torch",
    "families/batched.py:MujocoSimulator.__init__": "mujoco is an extra",
    "families/family.py:TaskFamily.register": "gymnasium is an extra",
    "learning/compiling.py:_program": "torch's compiler takes two seconds to import, which eager runs do without",
    "learning/compiling.py:compile_traced": "the same",
    "learning/compiling.py:loading_beside.<locals>.load": "the same: here it is imported while something else is read",
    "learning/devices.py:has_compiler": "the same, and torch has to be told a place for its programs before",
    "runs/mirrors.py:need_wandb": "wandb is an extra, and a policy is loaded without it",
    "runs/mirrors.py:tensorboard": "tensorboardX is an extra, and a policy is loaded without it",
    "units/on_ray.py:_task.<locals>.do": "what Ray runs travels whole, to nodes that may have no omrl",
    "units/place.py:executor": "Ray is an extra",
    "units/place.py:given": "Ray is an extra",
    "units/unit.py:perform": "a plan is made and looked at without torch",
}
# Public functions with Any in their signatures, and why.
SIGNATURES = {
    "families/environments.py:TaskEnv.reset": "gymnasium says so",
    "families/environments.py:TaskEnv.step": "gymnasium says so",
    "families/environments.py:TaskVectorEnv.close_extras": "gymnasium says so",
    "families/environments.py:TaskVectorEnv.reset": "gymnasium says so",
    "families/environments.py:TaskVectorEnv.step": "gymnasium says so",
}


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a file by its name, with its class before it."""

    def inside(node: ast.AST, place: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{place}{child.name}", child
                yield from inside(child, f"{place}{child.name}.<locals>.")
            else:
                yield from inside(child, f"{place}{child.name}." if isinstance(child, ast.ClassDef) else place)

    name = path.relative_to(PACKAGE).as_posix()
    for place, function in inside(ast.parse(path.read_text()), ""):
        yield f"{name}:{place}", function


def own_imports(function: ast.AST) -> bool:
    """Whether the function itself imports something, and not one inside it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.Import | ast.ImportFrom):
            return True
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and own_imports(child):
            return True
    return False


def test_imports_stand_at_the_top_of_files_but_for_those_that_have_a_reason():
    found = {name for path in PACKAGE.rglob("*.py") for name, node in functions(path) if own_imports(node)}
    assert found == set(LOCAL_IMPORTS)


def annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """What a signature says of types."""
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    yield from (one.annotation for one in every if one is not None and one.annotation is not None)
    if function.returns is not None:
        yield function.returns


def says_any(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(node))


def is_public(name: str) -> bool:
    parts = name.split(":")[1].split(".")
    return "<locals>" not in parts and not any(part.startswith("_") and part[:2] != "__" for part in parts)


def test_no_public_signature_says_any_but_where_another_library_does():
    found = {
        name
        for path in PACKAGE.rglob("*.py")
        for name, function in functions(path)
        if is_public(name) and any(map(says_any, annotations(function)))
    }
    assert found == set(SIGNATURES)


def test_no_alias_hides_an_any_but_those_of_arrays():
    """`Array` is numpy's: an array of any numbers."""
    hidden = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == "Any":
                hidden.append(path)
    assert not hidden


def test_the_page_on_rooms_names_what_is_there_and_every_room():
    """A file without a folder lies in a room that its paragraph names, or beside the rooms."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = set()
    for paragraph in re.split(r"\n\n|\n(?=- |\d\. |\|)", page):
        named = re.findall(r"`([\w/]+(?:/|\.py|\.toml))`", paragraph)
        own = {name for name in named if name.endswith("/")} | {
            f"{Path(name).parent}/" for name in named if "/" in name
        }
        for name in named:
            places = [PACKAGE / name, *(PACKAGE / room / name for room in own)]
            assert any(place.exists() for place in places), name
        rooms |= own
    assert {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")} <= rooms


def test_the_listing_of_the_docs_has_every_room():
    listing = (ROOT / "docs" / "index.md").read_text().split("src/omrl/\n")[1].split("benchmarks/")[0]
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", listing, flags=re.MULTILINE)) == rooms
