"""Runs: the folder of one training run (run.py, config.py, records.py), the trained model and its policies."""
