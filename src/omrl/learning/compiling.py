"""Programs: a function of tensors traced once, compiled by torch's Inductor, and kept for the next process.

`torch.compile` would analyse Python bytecode in every process, which takes several times as long as running the
function under a tracer: an update has no branch that depends on a number. What Inductor makes of the operations is
looked up by the operations themselves in the user's cache folder, so that a change of the function is never missed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph
from torch.utils import _pytree as pytree

P = ParamSpec("P")
T = TypeVar("T")
# What torch's cache of compiled programs may take: some hundreds of them.
CACHE_BYTES = 2 * 1024**3


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function compiled for the shapes of its first inputs, which are nested dicts and lists of tensors.

    It may change inputs in place, each to something that is no other input's old value. Where the compiler fails, which
    some shapes bring about, it is the function itself.
    """
    program: Callable[P, T] | None = None

    def call(*inputs: P.args, **none: P.kwargs) -> T:
        nonlocal program
        if program is None:
            program = _program(function, inputs)
        return program(*inputs, **none)

    return call


def _program(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    keep_compiled_programs()
    from torch._inductor.exc import InductorError

    flat, structure = pytree.tree_flatten(inputs)
    outputs: list[pytree.TreeSpec] = []

    def flattened(*tensors: Tensor) -> list[Tensor]:
        found, form = pytree.tree_flatten(function(*pytree.tree_unflatten(list(tensors), structure)))
        outputs.append(form)
        return found

    try:
        fast = compile_traced(flattened, flat)
    except InductorError as error:
        _warn_once(str(error).strip().splitlines()[0])
        return function
    return lambda *again: pytree.tree_unflatten(fast(pytree.tree_leaves(again)), outputs[0])


def compile_traced(function: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """The function of tensors as a program of a list of them, traced on tensors that have shapes and no numbers."""
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Without an environment of shapes Inductor does not look into its cache.
    shapes_alone = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    empty = [shapes_alone.from_tensor(tensor, static_shapes=True) for tensor in inputs]
    with tracing(TracingContext(shapes_alone)):
        trace = partial(make_fx, decomposition_table=select_decomp_table())
        traced = trace(function)(*empty)
        if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in traced.graph.nodes):
            # Views stay views: as copies, some would be kernels of their own before matrix products.
            traced = trace(functionalize(traced, remove="mutations"))(*empty)
        _forget_aliases(traced.graph)
        traced.graph = fx_graph_cse(traced.graph)
        traced.graph.eliminate_dead_code()
        traced.recompile()
        # On a GPU one kernel lays dozens of gradients side by side, not one each.
        one_for_all = inputs[0].is_cuda and hasattr(config, "force_pointwise_cat")
        with config.patch({"force_pointwise_cat": True} if one_for_all else {}):
            program: Callable[..., Sequence[Tensor]] = compile_fx_inner(traced, empty, is_inference=True)
    return program


def _forget_aliases(graph: Graph) -> None:
    """Take a tensor for its alias: what a loss reads detached and another as it is would else be computed twice."""
    for node in graph.nodes:
        if node.target in (torch.ops.aten.alias.default, torch.ops.aten.detach.default):
            node.replace_all_uses_with(node.args[0])


@contextmanager
def loading_beside(wanted: bool = True) -> Iterator[None]:
    """While something else is read or copied: import the compiler, which takes two seconds of a run's start."""

    def load() -> None:
        import torch._inductor.compile_fx  # noqa: F401

    thread = threading.Thread(target=load, daemon=True)
    if wanted:
        keep_compiled_programs()
        thread.start()
    yield
    if wanted:
        thread.join()  # nothing else of torch is imported meanwhile: modules that need one another are not for threads


@cache
def _warn_once(reason: str) -> None:
    print(f"warning: not compiled, and slower for it, because the compiler failed: {reason}", file=sys.stderr)


def keep_compiled_programs() -> None:
    """Have torch keep what it compiles in the user's cache folder, so that the next process need not compile it again.

    It is torch's own cache, keyed by its versions and private to the user; TORCHINDUCTOR_CACHE_DIR names another place.
    """
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    ours = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omrl"
    folder = ours / f"torch-{torch.__version__}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        forget_oldest(ours, CACHE_BYTES)
    except OSError:  # a home that cannot be written to: torch takes a temporary folder
        return
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def forget_oldest(folder: Path, limit: int) -> None:
    """Where a folder's files take more bytes than the limit, delete those used longest ago until half of it is left."""
    files = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # of another process, which is done with it
            found = path.stat()
            files += [(found.st_atime, found.st_size, path)] if path.is_file() else []
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        path.unlink(missing_ok=True)
        total -= size
        if total <= limit // 2:
            return
