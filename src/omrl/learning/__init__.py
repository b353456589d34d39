"""Learning: meta-batches (sampling.py), the training loop (training.py), what comes before (stages.py), looks at it."""
