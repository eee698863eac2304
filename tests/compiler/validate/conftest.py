"""A solver that the tests of a module share."""

from collections.abc import Iterator

import pytest

from uops.compiler.prove.solver.solver import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.close()
