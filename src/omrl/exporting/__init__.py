"""A trained policy for programs that have no torch: rows in the log's units go in, actions in the log's units come out.

    omrl export runs/focal --to numpy --out exported

Normalisation and the actions' bounds are inside. `to_numpy.py` writes a runtime of one file, `to_onnx.py` two graphs.
"""
