"""What tests ask of a run that ended, and how they end one in the middle."""

from __future__ import annotations

from omrl.learning.training import Training
from omrl.runs.run import Run


def checkpoint(folder):
    return Run.open(folder).load()


def params(folder):
    return checkpoint(folder)[1]["params"]


def same_files(one, other, *names):
    for name in names or ("checkpoints/step-0000012.safetensors", "metrics.csv", "config.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


class Cut(Exception):
    """Something that ends a run in the middle."""


def cut_at(monkeypatch, call):
    """Make the draw of that number fail."""
    draw, calls = Training._draw, []

    def failing(self, generator):
        calls.append(1)
        if len(calls) == call:
            raise Cut
        return draw(self, generator)

    monkeypatch.setattr(Training, "_draw", failing)


def spied(monkeypatch):
    """The observations of every draw."""
    draw, drawn = Training._draw, []

    def spy(self, generator):
        batch, noise = draw(self, generator)
        drawn.append(batch["obs"].clone())
        return batch, noise

    monkeypatch.setattr(Training, "_draw", spy)
    return drawn
