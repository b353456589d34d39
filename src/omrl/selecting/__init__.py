"""Choosing without a simulator: what logs alone tell of policies, and whether they are better than the logger.

    omrl select runs/a runs/b

`worlds.py` has the estimate that counts: logged episodes lived again by the policy, in worlds that the log does not
rule out. `fitted_q.py` and `neighbours.py` are second opinions, `signals.py` gathers all of them for a model, and
`verdict.py` makes one word of them.
"""
