"""What all tests share: golden files with an update flag, a cache of compiled objects of their own, processes that Ctrl-C reaches,
and checks of the compiler that are always on: the verifier between all passes, and the validation of every kernel where Z3 is
installed, as it is in CI."""

import faulthandler
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from uops.compiler.config import reload_default_config

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of tests/golden instead of comparing")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The corpus first: what was wrong once is the first thing that is asked."""
    corpus = Path(__file__).parent / "corpus"
    items.sort(key=lambda item: corpus not in item.path.parents)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Dask cluster on this machine, with as many workers as the module's `WORKERS` says."""
    distributed = pytest.importorskip("distributed", reason="needs the extra cluster")
    with distributed.LocalCluster(
        n_workers=request.module.WORKERS, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as workers:
        yield workers


STACKS = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Write the stacks and the stderr of a worker that crashes to files, which the controller shows at the end.

    CPython turns faulthandler off before a fatal error of its own: it has then written to stderr, so to what pytest captures.
    """
    if hasattr(config, "workerinput"):
        stacks, stderr = (_open_for_worker(config, kind) for kind in ("stacks", "stderr"))
        faulthandler.enable(stacks)
        captured = config.pluginmanager.getplugin("capturemanager")._global_capturing.err
        if captured is not None and hasattr(captured, "targetfd"):  # neither -s nor --capture=sys
            os.dup2(stderr.fileno(), captured.tmpfile.fileno())
            os.dup2(stderr.fileno(), captured.targetfd)
    else:
        config.stash[STACKS] = tempfile.TemporaryDirectory(prefix="uops-stacks-")
        config.add_cleanup(config.stash[STACKS].cleanup)


def _open_for_worker(config: Any, kind: str) -> FileIO:
    """Open a file that the controller shows if this worker crashes."""
    file = FileIO(Path(config.workerinput["stacks"], f"{config.workerinput['workerid']} {kind}"), "w+")
    config.add_cleanup(file.close)
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["stacks"] = node.config.stash[STACKS].name


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note the exit status of a worker that crashed: -9 is a kill, of which no stack tells."""
    if error is not None:
        status = node.gateway._io.popen.wait(timeout=10)
        Path(node.config.stash[STACKS].name, f"{node.gateway.id} status").write_text(f"exit status {status}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what the workers that crashed left."""
    folder = Path(config.stash[STACKS].name)
    for status in sorted(folder.glob("* status")):
        for file in sorted(folder.glob(f"{status.name.split()[0]} *")):
            if text := file.read_text(errors="replace"):
                terminalreporter.section(file.name)
                terminalreporter.write_line(text)


def pytest_collection_finish() -> None:
    """Leave the thirty thousand collected tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()


def validates() -> bool:
    """Whether kernels are validated: where there is a solver. Raises UsageError in CI, where there has to be one."""
    if find_spec("z3") is None and os.environ.get("CI"):
        raise pytest.UsageError("Z3 is not installed, so no kernel would be validated: pip install '.[test,prove]'")
    return find_spec("z3") is not None


def pytest_report_header() -> str:
    return f"kernels: {'validated' if validates() else 'not validated, as Z3 is not installed'}"


@pytest.fixture(scope="session", autouse=True)
def object_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read what an earlier run compiled nor write into the user's folders; processes they start inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UOPS_CACHE_DIR", str(tmp_path_factory.mktemp("objects")))
        patch.setenv("UOPS_VERIFY", "1")
        patch.setenv("UOPS_VALIDATE", str(int(validates())))
        reload_default_config()
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Processes that the test starts answer SIGINT. A shell's job in the background ignores it, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


@pytest.fixture
def status_in_fork() -> Callable[[Callable[[], object]], int]:
    """The exit status of a fork of this process that does some work: 0 if nothing is raised, 3 if something is."""

    def status(work: Callable[[], object]) -> int:
        pid = os.fork()
        if not pid:
            try:
                work()
            except BaseException:
                os._exit(3)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return status
