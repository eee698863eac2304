"""NumPy, as `workloads.py` writes it."""

from __future__ import annotations

import numpy as np
from formulas import formulas
from protocol import serve

TABLE = formulas(np)


def prepare(name, arrays, layout):
    f = TABLE[name]
    return lambda: f(layout, *arrays)


if __name__ == "__main__":
    serve(prepare, np.__version__)
