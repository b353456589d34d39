"""Step 1, collect: one SAC agent per task, all trained at once, their checkpoints rolled out into a meta-dataset."""
