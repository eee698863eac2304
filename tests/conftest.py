"""What all tests share: golden files with an update flag, and a cache of compiled objects of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from uops.compiler.config import default

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of tests/golden instead of comparing")


@pytest.fixture(scope="session", autouse=True)
def object_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read what an earlier run compiled nor write into the user's folders; processes they start inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UOPS_CACHE_DIR", str(tmp_path_factory.mktemp("objects")))
        patch.setenv("UOPS_VERIFY", "1")  # the verifier runs between all passes
        default.cache_clear()
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)`: `text` is what tests/golden/`name` holds; with --update-golden it is written there first."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing; write it with --update-golden"
        assert text == path.read_text(), f"{name} changed; look at the difference, then run with --update-golden"

    return compare
