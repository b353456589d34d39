"""Choose hyperparameters: trials on training tasks, as many for each row, all of a row as one population.

    omrl tune mine.toml --data data/half-cheetah-vel --out trials.json

A quarter of the training tasks is held out: learners are trained on the others, told each held-out task by its own log,
and judged by their return in it, or without a simulator by what logs tell of it beyond the logger's: `selecting/`. No
test task is used. Where the best trial lies on the edge of what was tried, one step beyond is tried too, with as many
learners.
"""
