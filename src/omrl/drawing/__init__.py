"""Every figure, of runs, studies and behaviour data, in one style. (`families/painters.py` paints environments.)

All of it needs matplotlib, which is an extra.
"""

from omrl.errors import needs_extra

with needs_extra("plot", "Drawing"):
    import matplotlib.figure  # noqa: F401
