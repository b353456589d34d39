"""Meta-batches: for every learner some tasks, for every task rows for actor and critic and two context sets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omrl.data import Tensors


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of the training data's observations."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, data: Tensors) -> Normalisation:
        """Over all rows of all tasks; an entry that never changes is only centred."""
        rows = data.obs[_filled(data)].double()
        std = rows.std(0)
        return cls(rows.mean(0).float(), torch.where(std > 1e-6, std, 1.0).float())

    def __call__(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std


class MetaSampler:
    """The training tasks' data on the device, packed so that one gather fetches a row, and how to draw from it.

    Tasks are drawn without replacement, rows with replacement, contexts independently of the rows. Where there are
    fewer tasks than the meta-batch asks for, every task gives more rows, so that their number stays the same.
    """

    def __init__(
        self,
        data: Tensors,
        normalise: Normalisation,
        *,
        learners: int,
        meta_batch: int,
        batch_size: int,
        context_size: int,
    ) -> None:
        tasks, self._longest, obs_dim = data.obs.shape
        self.learners, self.meta_batch = learners, min(meta_batch, tasks)
        self.batch_size = batch_size * meta_batch // self.meta_batch
        self.context_size = context_size
        self._length = data.length.float()
        act_dim = data.act.shape[-1]
        next_act, has_next = next_actions(data)
        rew_dense = data.rew if data.rew_dense is None else data.rew_dense
        columns = {
            "obs": normalise(data.obs),
            "act": data.act,
            "rew": data.rew[..., None],
            "next_obs": normalise(data.next_obs),
            "term": data.term[..., None].float(),
            "rew_dense": rew_dense[..., None],
            "next_act": next_act,
            "has_next": has_next[..., None],
        }
        self._names, self._widths = list(columns), [column.shape[-1] for column in columns.values()]
        self._context_width = 2 * obs_dim + act_dim + 1
        self._rows = torch.cat(list(columns.values()), dim=-1).flatten(0, 1).contiguous()

    @property
    def transitions_per_update(self) -> int:
        """Rows drawn for one learner's update, the paper's x axis."""
        return self.meta_batch * self.batch_size

    def draw(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Rows [P, M, B, dim] by name (rew, term, ... without the last axis), context [P, M, 2, C, (s, a, r, s')]."""
        device = self._rows.device
        scores = torch.rand(self.learners, len(self._length), generator=generator, device=device)
        tasks = scores.topk(self.meta_batch, dim=1).indices[..., None]  # [P, M, 1]
        count = self.batch_size + 2 * self.context_size
        uniform = torch.rand(self.learners, self.meta_batch, count, generator=generator, device=device)
        picked = self._rows[tasks * self._longest + (uniform * self._length[tasks]).long()]
        rows, context = torch.split(picked, [self.batch_size, 2 * self.context_size], dim=2)
        batch = dict(zip(self._names, torch.split(rows, self._widths, dim=-1), strict=True))
        for name in ("rew", "term", "rew_dense", "has_next"):
            batch[name] = batch[name].squeeze(-1)
        batch["context"] = context[..., : self._context_width].reshape(
            self.learners, self.meta_batch, 2, self.context_size, self._context_width
        )
        return batch


def _filled(data: Tensors) -> Tensor:
    """[task, transition] true where there is a row."""
    return torch.arange(data.obs.shape[1], device=data.length.device) < data.length[:, None]


def next_actions(data: Tensors) -> tuple[Tensor, Tensor]:
    """The action logged after each row in the same episode, and 1.0 where there is one."""
    follows = torch.zeros_like(data.episode, dtype=torch.bool)
    same = (data.episode[:, 1:] == data.episode[:, :-1]) & (data.step[:, 1:] == data.step[:, :-1] + 1)
    follows[:, :-1] = same & _filled(data)[:, 1:]
    return torch.roll(data.act, -1, dims=1) * follows[..., None], follows.float()
