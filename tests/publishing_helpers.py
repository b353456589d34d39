"""Summaries and results made by hand, for the tests of the tools that publish."""

from __future__ import annotations

WIND, ANT = "point-robot-wind", "ant-fwd-back"


def summary(value, **more):
    mean = {"value": value, "low": value - 1, "high": value + 2}
    about = {"tasks_trained_on": 0, "random": 0.0, "expert": 20.0, "normalised": value / 20}
    return {"updates": 10_000, "seeds": 2, "mean": mean, "per_seed": [value - 0.5, value + 0.5], **about, **more}


def estimate(value, spread=1.0):
    return {"value": value, "low": value - spread, "high": value + spread}


def row(label, value, run="runs/one", data=WIND, **more):
    return {
        "data": data,
        "row": label,
        "run": run,
        "algorithm": "focal",
        "level": "expert",
        "context_level": "expert",
        "seeds": 5,
        "updates": 10_000,
        "mean": estimate(value),
        "random": 0.0,
        "expert": 20.0,
        "normalised": value / 20,
        "metrics": {"return": [value - 0.5, value + 0.5]},
        "published": {},
        **more,
    }


def results(name, rows, claims=(), figures=("return",), tables=("returns", "claims"), **more):
    about = {"experiment": name, "paper": "Figure 0", "title": f'About "{name}"', "scale": "full", "note": ""}
    return {**about, "rows": rows, "claims": list(claims), "figures": list(figures), "tables": list(tables), **more}
