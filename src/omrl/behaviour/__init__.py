"""Step 1, collect: one SAC agent per task, all tasks trained at once, their checkpoints rolled out into a meta-dataset."""
