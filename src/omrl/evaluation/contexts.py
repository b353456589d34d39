"""Contexts of logged rows, and what a model makes of them."""

from __future__ import annotations

import numpy as np
import torch
from torch.func import vmap

from omrl.data import MetaDataset
from omrl.evaluation.embedding import effective_separation_rate, rms_distance
from omrl.runs.model import Model
from omrl.runs.policy import CONTEXT


def infer_tasks(model: Model, view: MetaDataset, context: int, seed: int) -> torch.Tensor:
    """Every seed's embedding of every task, [P, T, l]."""
    contexts = draw_contexts(model, view, context, seed)
    with torch.no_grad():
        z: torch.Tensor = vmap(model.algorithm.infer)(model.population.params, contexts)
    return z


def draw_contexts(model: Model, view: MetaDataset, context: int, seed: int) -> torch.Tensor:
    """Contexts [P, T, C, (s, a, r, s')] of logged rows; every seed and task draws its own."""
    drawn = [
        [view.sample(t, context, np.random.default_rng([seed, 3, p, t])) for t in range(len(view.tasks))]
        for p in range(model.population.size)
    ]
    return model.contexts({name: np.stack([[d[name] for d in row] for row in drawn]) for name in CONTEXT})


def embeddings(model: Model, view: MetaDataset, context: int, seed: int) -> dict[str, list[float]]:
    """ESR and RMS of every seed's embeddings of the tasks it was trained on, as in the paper's Table 1."""
    if len(view.tasks) < 2:
        return {"esr": [], "rms": []}  # no pair of tasks to keep apart
    codes = infer_tasks(model, view, context, seed).cpu().numpy()
    return {"esr": [effective_separation_rate(c) for c in codes], "rms": [rms_distance(c) for c in codes]}
