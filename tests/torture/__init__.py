"""A campaign against omrl: damaged files, kills, full disks, no memory, no permissions, and everything started twice.

    make torture                                   a seed of its own, all of it
    PYTHONPATH=tests python -m torture --seed 7    the same again; what was interrupted goes on
    PYTHONPATH=tests python -m torture --seed 7 --repeat input/config.json/17

Every attempt runs in a child that is forked from a process which has imported everything. `inputs.py` has every kind of
file that omrl reads, `mutating.py` how they are damaged; `steps.py` has every command, `moments.py` what happens to one
at a file operation; `campaign.py` goes through all of it.
"""
