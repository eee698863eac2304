"""NumPy, as `workloads.py` writes it."""

from __future__ import annotations

import numpy as np
from formulas import build_formulas
from protocol import serve

TABLE = build_formulas(np)


def prepare(name, arrays, layout):
    """Return a function that runs a workload."""
    f = TABLE[name]
    return lambda: f(layout, *arrays)


if __name__ == "__main__":
    serve(prepare, np.__version__)
