"""Independent numpy implementations of what several algorithms have in common, and an example to try them on."""

from __future__ import annotations

import numpy as np
import torch

M, B, C, S, A, L = 3, 5, 4, 3, 2, 2


def params_of(nets: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in nets.named_parameters()}


def numpy_of(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {key: value.numpy() for key, value in tensors.items()}


def example(seed: int = 0) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    rng = np.random.default_rng(seed)
    batch = {
        "obs": rng.normal(size=(M, B, S)),
        "act": rng.uniform(-0.9, 0.9, size=(M, B, A)),
        "rew": rng.normal(size=(M, B)),
        "rew_dense": rng.normal(size=(M, B)),
        "next_obs": rng.normal(size=(M, B, S)),
        "term": (rng.random((M, B)) < 0.3).astype(float),
        "next_act": rng.uniform(-0.9, 0.9, size=(M, B, A)),
        "has_next": (rng.random((M, B)) < 0.7).astype(float),
        "context": rng.normal(size=(M, 2, C, 2 * S + A + 1)),
    }
    noise = {
        "act": rng.normal(size=(M, B, A)),
        "next_act": rng.normal(size=(M, B, A)),
        "mix": rng.random((M, B, 1)),
        "z": rng.normal(size=(M, 2, L)),
    }
    return tuple({k: torch.tensor(v) for k, v in part.items()} for part in (batch, noise))  # type: ignore[return-value]


def np_mlp(params: dict[str, torch.Tensor], name: str, x: np.ndarray, copy: int | None = None) -> np.ndarray:
    layers = sum(key.startswith(f"{name}.weight.") for key in params)
    for i in range(layers):
        weight, bias = params[f"{name}.weight.{i}"].numpy(), params[f"{name}.bias.{i}"].numpy()
        if copy is not None:
            weight, bias = weight[copy], bias[copy]
        x = x @ weight + bias
        if i < layers - 1:
            x = np.maximum(x, 0)
    return x


def np_policy(params: dict[str, torch.Tensor], obs: np.ndarray, z: np.ndarray, noise: np.ndarray):
    mean, raw = np.split(np_mlp(params, "actor", np.concatenate([obs, z], -1)), 2, -1)
    std = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
    u = mean + std * noise
    log_prob = (-0.5 * noise**2 - np.log(std) - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)).sum(-1)
    return np.tanh(u), log_prob


def np_q(params: dict[str, torch.Tensor], obs: np.ndarray, z: np.ndarray, act: np.ndarray) -> np.ndarray:
    rows = np.concatenate([obs, z, act], -1)
    return np.stack([np_mlp(params, "critic", rows, copy)[..., 0] for copy in range(2)])


def np_divergence(params: dict[str, torch.Tensor], obs, z, policy_act, data_act) -> np.ndarray:
    def t(act: np.ndarray) -> np.ndarray:
        return np.log1p(np.exp(np_mlp(params, "g", np.concatenate([obs, z, act], -1))[..., 0]))

    return np.log(t(policy_act) + 1e-8) - t(data_act) + 1


def np_posterior(params: dict[str, torch.Tensor], context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the product of the transitions' Gaussians, one transition after the other."""
    mean, precision = 0.0, 0.0
    for c in range(context.shape[-2]):
        code = np_mlp(params, "encoder", context[..., c, :])
        own = 1 / np.log1p(np.exp(code[..., L:]))
        mean, precision = (mean * precision + code[..., :L] * own) / (precision + own), precision + own
    return mean, 1 / precision


def gradients(loss: torch.Tensor, leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of every leaf, zero where the loss does not reach it."""
    found = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True, allow_unused=True)
    return {name: torch.zeros_like(leaves[name]) if g is None else g for name, g in zip(leaves, found, strict=True)}


def slope(function, params: dict[str, torch.Tensor], name: str, direction: torch.Tensor, step: float = 1e-6) -> float:
    """Central difference of a function of the parameters along a direction of one of them."""
    ends = [float(function({**params, name: params[name] + sign * step * direction})) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)
