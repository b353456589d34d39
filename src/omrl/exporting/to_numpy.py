"""A policy as one Python file that needs numpy alone, and its weights."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omrl.errors import OmrlError
from omrl.exporting import omrl_runtime
from omrl.exporting.description import describe
from omrl.runs.choices import as_logged, in_units
from omrl.runs.model import Model
from omrl.storage.files import replacing

# Rows that the runtime is tried on before it is written, and how far it may be off, as a share of an action's range.
TRIED, TOLERANCE = 64, 1e-4
# Of two candidates that the critic likes as well, rounding decides: this share of rows has to agree.
AGREEING = 0.9


def write(model: Model, seed: int, folder: Path) -> list[Path]:
    """Runtime and weights into a folder."""
    about, arrays = exported(model, seed)
    _try(omrl_runtime.Model(about, arrays), model, seed)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
    source = Path(omrl_runtime.__file__)
    files = {source.name: source.read_bytes(), omrl_runtime.WEIGHTS: content.getvalue()}
    for name, data in files.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(data)
    return [folder / name for name in files]


def exported(model: Model, seed: int) -> tuple[dict[str, object], dict[str, NDArray[np.float32]]]:
    """What the runtime reads: words and arrays."""
    recipe = model.algorithm.recipe
    if recipe is None:
        name = model.run.config.algorithm
        raise OmrlError(f"{name} does not say in a recipe how it infers and acts; export it with --to onnx instead.")
    networks = ["encoder", "actor", *(["vae.decoder", "critic"] if recipe.actions == "candidates" else [])]
    arrays = {
        "observation_mean": model.normalise.mean.cpu().numpy(),
        "observation_std": model.normalise.std.cpu().numpy(),
        "action_low": model.action_low,
        "action_high": model.action_high,
    }
    for name, value in model.params(seed).items():
        if name.startswith(tuple(f"{network}." for network in networks)):
            # Of twin critics the first one chooses.
            arrays[name] = (value[0] if value.ndim == 3 else value).detach().cpu().numpy()
    if model.run.config.choices is not None:
        units = in_units(model.run.config.choices, model.action_low.tolist(), model.action_high.tolist())
        arrays["choices"] = np.array(units, np.float32).reshape(-1, model.act_dim)
    if recipe.latents is not None:
        arrays["latents"] = recipe.latents.numpy()
    about = {
        "format": omrl_runtime.FORMAT,
        **describe(model, seed),
        "codes": recipe.codes,
        "squashed": recipe.squashed,
        "actions": recipe.actions,
        "perturbation": recipe.perturbation,
        "layers": {name: sum(key.startswith(f"{name}.weight.") for key in arrays) for name in networks},
    }
    return about, arrays


def _try(runtime: omrl_runtime.Model, model: Model, seed: int) -> None:
    """Refuse a runtime that does something else than the model: an heir may act otherwise and have the same recipe."""
    rng = np.random.default_rng(0)
    mean, std = runtime.arrays["observation_mean"], runtime.arrays["observation_std"]
    obs, next_obs = (mean + std * rng.normal(size=(TRIED, model.obs_dim)) for _ in range(2))
    act: Any = rng.uniform(model.action_low, model.action_high, (TRIED, model.act_dim))
    if model.run.config.choices is not None:
        act = as_logged(act, model.run.config.choices)
    context = dict(zip(omrl_runtime.CONTEXT, (obs, act, rng.normal(size=TRIED), next_obs), strict=True))
    found, wanted = runtime.adapt(context), model.adapt(context, seed, on_strange="ignore")
    if model.run.config.choices is not None:
        agree = (found.act(obs) == wanted.act(obs)).all(-1).mean()
    else:
        apart = np.abs(found.act(obs) - wanted.act(obs)) / (model.action_high - model.action_low)
        agree = (apart.max(-1) < TOLERANCE).mean()
    if not np.allclose(found.z, wanted.z, atol=TOLERANCE, rtol=TOLERANCE) or agree < AGREEING:
        name = model.run.config.algorithm
        raise OmrlError(f"{name} infers or acts otherwise than its recipe says; export it with --to onnx instead.")
