"""Step 4 of the flow: how well a run adapts to tasks it has not seen.

    omrl evaluate runs/focal

Which rows tell a task, what may be simulated and what is counted is a protocol: `protocol.py` says what one is, and
there is a file for each. `testing.py` runs one on a run.
"""
