"""A solver that the tests of a module share."""

from collections.abc import Iterator

import pytest

from uops.compiler.prove.solver.solver import SolverWorker


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    found = SolverWorker()
    yield found
    found.close()
