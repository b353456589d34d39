"""Units of work: what a study, a sweep or a collection is cut into, so that any machine can do a part of it.

    unit.py        what a unit is, as plain data, and how one is done
    schedule.py    which comes next, what happens to those that are lost or fail
    local.py       doing them here: one after the other, or in several processes
    on_ray.py      doing them on a cluster; `worker.py` is what happens there, `transfer.py` how files get to and fro
    board.py       what a person sees of it: a bar, a line per node, a page
    simulate.py    how long a plan would take on more machines than one has

Who makes units (studies, tuning, behaviour) does not know where they are done, and gets the same bytes on a CPU.
"""
