"""How fast an algorithm learns: milliseconds per update at Half-Cheetah-Vel's shapes and the paper's sizes.

    omrl bench update --seeds 1 3 12 --regulariser-steps 1 3

An update is everything that training does between two checkpoints: draw a meta-batch, all losses and their gradients,
optimiser, target networks. Beside it stands the time of its matrix products alone, recorded from one update and run
again by themselves: what is left above it is what the rest of the update costs.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from omrl.algorithms import get_algorithm
from omrl.algorithms.algorithm import BatchSpec, MetaConfig
from omrl.commands.bench import Bench, Update
from omrl.data import Tensors
from omrl.learning.compiling import loading_beside
from omrl.learning.devices import choose_device, on_cpu
from omrl.learning.sampling import MetaSampler, Normalisation
from omrl.learning.stages import Frozen, untrained
from omrl.runs.model import populate
from omrl.storage.files import write_json
from omrl.words import quantity

TASKS, ROWS, OBS, ACT = 80, 10_000, 20, 6
# Updates of a run that is long enough to be compiled on a CPU.
LONG = 100_000
# Updates whose kernels are looked at, kernels that are listed, and words in the names of those that multiply matrices.
PROFILED, LONGEST = 20, 12
PRODUCTS = ("gemm", "nvjet", "cutlass", "xmma", "splitk", "gemv", "_mm_", "_bmm_")


def update(args: Update) -> dict[str, object]:
    """All rows of the table, with what they were measured on."""

    device = choose_device(args.device)
    rows = []
    for algorithm in args.algorithms:
        for regulariser_steps in args.regulariser_steps:
            for seeds in args.seeds:
                rows.append(_measure(args, algorithm, seeds, regulariser_steps, device))
                print(_line(rows[-1]), flush=True)
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    return {"hardware": hardware, "torch": torch.__version__, "python": platform.python_version(), "updates": rows}


def _measure(args: Update, name: str, seeds: int, regulariser_steps: int, device: str) -> dict[str, Any]:
    kind = get_algorithm(name)
    names = {field.name for field in fields(kind.Config)}
    has_regulariser = "regulariser_steps" in names
    changes: dict[str, Any] = {"bfloat16": args.bfloat16}
    if has_regulariser:
        changes["regulariser_steps"] = regulariser_steps
    config = kind.Config(**changes)
    mode = args.mode or (on_cpu(config, seeds, LONG)["mode"] if device == "cpu" else None)
    with loading_beside(mode != "eager"):  # as beside the data of a run
        rows = _rows(device)
    started = time.perf_counter()
    algorithm, population = populate(kind, OBS, ACT, config, range(seeds), device, mode)
    sampler = _sampler(config, algorithm.batch_spec, seeds, rows)
    _wait(device)
    build = time.perf_counter() - started
    # What an algorithm has learnt before takes the same time whatever it is.
    frozen = Frozen(untrained(algorithm.stages("reward"), seeds, TASKS, device), args.bfloat16)

    def draw(generator: torch.Generator) -> Any:
        batch = sampler.draw(generator)
        batch |= frozen.of(batch["task"])
        return batch, algorithm.noise(batch, generator)

    def step() -> None:
        population.step(draw)

    started = time.perf_counter()
    step()
    _wait(device)
    first = time.perf_counter() - started
    products: list[tuple[Any, tuple[torch.Tensor, ...]]] = []
    if device == "cpu":
        # Operations are seen one by one where they are not compiled.
        _, eager = populate(kind, OBS, ACT, config, range(seeds), device, "eager")
        products = _products(lambda: eager.step(draw))
    kernels = _kernels(step) if device == "cuda" else {}
    return {
        "algorithm": name,
        "seeds": seeds,
        "regulariser_steps": regulariser_steps if has_regulariser else None,
        "mode": population.mode,
        "ms": _median_ms(step, args, device),
        "products_ms": _median_ms(lambda: _replay(products), args, device) if products else None,
        **kernels,
        "build_s": build,
        "first_update_s": first,
        "hyperparameters": asdict(config),
    }


def _rows(device: str) -> Tensors:
    """Random data of the right shapes, as training holds it."""

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(TASKS, ROWS, *shape, generator=generator).to(device)

    step = torch.arange(ROWS, device=device).expand(TASKS, -1)
    return Tensors(
        obs=normal(OBS),
        act=normal(ACT).clamp(-1.0, 1.0),
        rew=normal(),
        next_obs=normal(OBS),
        term=torch.zeros(TASKS, ROWS, dtype=torch.bool, device=device),
        episode=step // 200,
        step=step % 200,
        length=torch.full((TASKS,), ROWS, device=device),
    )


def _sampler(config: MetaConfig, spec: BatchSpec, seeds: int, data: Tensors) -> MetaSampler:
    sizes = {"meta_batch": config.meta_batch, "batch_size": config.batch_size, "context_size": config.context_size}
    return MetaSampler(data, Normalisation.of(data), spec=spec, learners=seeds, **sizes)


def _products(step: Callable[[], object]) -> list[tuple[Any, tuple[torch.Tensor, ...]]]:
    """The matrix products of one update: each operation with random operands of its shapes and strides."""
    aten = torch.ops.aten
    kinds = {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
    found: list[tuple[Any, tuple[torch.Tensor, ...]]] = []

    class Record(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in kinds:
                operands = tuple(torch.empty_like(x).normal_() for x in args[kinds[func] : kinds[func] + 2])
                found.append((torch.bmm if operands[0].ndim == 3 else torch.mm, operands))
            return func(*args, **(kwargs or {}))

    with Record():  # type: ignore[no-untyped-call]
        step()
    return found


def _kernels(step: Callable[[], None]) -> dict[str, Any]:
    """Of one update on a GPU: how long its product kernels and its other kernels take, and how many there are."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED):
            step()
        _wait("cuda")
    found = [event for event in seen.events() if event.device_time_total > 0]
    micro = {True: 0.0, False: 0.0}
    for event in found:
        micro[any(word in event.name.lower() for word in PRODUCTS)] += event.device_time_total / PROFILED
    return {
        "product_kernels_us": micro[True],
        "other_kernels_us": micro[False],
        "kernels": round(len(found) / PROFILED),
        "longest": _longest(found),
    }


def _longest(events: Sequence[Any]) -> list[dict[str, Any]]:
    """The kernels that take most of an update, by name: where the time is."""
    by_name: dict[str, list[float]] = {}
    for event in events:
        by_name.setdefault(event.name[:80], []).append(event.device_time_total)
    ranked = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    return [{"kernel": n, "count": round(len(t) / PROFILED, 1), "us": round(sum(t) / PROFILED, 1)} for n, t in ranked]


def _replay(products: list[tuple[Any, tuple[torch.Tensor, ...]]]) -> None:
    for operation, operands in products:
        operation(*operands)


def _median_ms(work: Callable[[], None], args: Update, device: str) -> float:
    """Median over stretches of the time of one call; a stretch has as many calls as fill its time."""

    def stretch(calls: int) -> float:
        _wait(device)
        started = time.perf_counter()
        for _ in range(calls):
            work()
        _wait(device)
        return (time.perf_counter() - started) / calls

    calls = max(1, round(args.seconds / stretch(2)))
    return float(np.median([stretch(calls) for _ in range(args.repeats)])) * 1e3


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _line(row: dict[str, Any]) -> str:
    steps = "" if row["regulariser_steps"] is None else f", {row['regulariser_steps']} discriminator steps"
    products = "" if row["products_ms"] is None else f", its matrix products alone {row['products_ms']:.2f} ms"
    if "kernels" in row:
        products = (
            f" ({row['product_kernels_us']:,.0f} us in products, {row['other_kernels_us']:,.0f} us in others, "
            f"{row['kernels']} kernels)"
        )
    steps += ", bfloat16" if row["hyperparameters"].get("bfloat16") else ""
    return (
        f"{row['algorithm']}, {quantity(row['seeds'], 'seed')}{steps}, {row['mode']}: {row['ms']:.2f} ms per update"
        f"{products}, built in {row['build_s']:.1f} s, first update {row['first_update_s']:.1f} s"
    )


def run(args: Bench) -> None:
    """The command."""
    figures = update(args.command)
    if args.command.json is not None:
        write_json(args.command.json, figures)
