"""The contract's data, and backends by name."""

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from uops.backends import registry
from uops.backends.contract import Backend, Capabilities, Deviation, Missing
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.result import Result


class Stub(Backend):
    name: ClassVar[str] = "stub"

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def version(self) -> str:
        return "stub 1"

    def capabilities(self) -> Capabilities:
        return CAPABLE

    def run(self, graph: UOp, inputs) -> Result:
        return Result((), {})


CAPABLE = Capabilities(
    dtypes=(dt.bool_, dt.int32, dt.float32),
    unsupported=(Missing("Decomposed/Threefry", "*", "no 64-bit integers"), Missing("Elementwise/*", "bool", "no predicates")),
    deviations=(Deviation("Elementwise/Max", "float*", "strict", "drops NaN", "https://example.org/1"),),
)


@pytest.mark.parametrize(
    ("row", "dtype", "reason"),
    [
        ("Elementwise/Add", dt.int32, None),
        ("Elementwise/Add", dt.float64, "no dtype float64"),
        ("Elementwise/Add", dt.bool_, "no predicates"),
        ("Movement/Pad", dt.bool_, None),
        ("Decomposed/Threefry", dt.int32, "no 64-bit integers"),
        ("Decomposed/Threefry", None, "no 64-bit integers"),
        ("Elementwise/Add", dt.index, None),
        ("Ordering/Range", None, None),
    ],
)
def test_what_a_backend_lacks_is_declared(row: str, dtype: dt.DType | None, reason: str | None) -> None:
    missing = CAPABLE.missing(row, dtype)
    assert (missing.reason if missing else None) == reason


def test_a_deviation_holds_for_its_row_dtype_and_level() -> None:
    found = CAPABLE.deviation("Elementwise/Max", dt.float32, "strict")
    assert found is CAPABLE.deviations[0]
    assert CAPABLE.deviation("Elementwise/Max", dt.float32, "core") is None
    assert CAPABLE.deviation("Elementwise/Max", dt.int32, "strict") is None
    assert CAPABLE.deviation("Elementwise/Mul", dt.float32, "strict") is None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("stub", f"{__name__}:Stub", registry.GROUP),
        EntryPoint("absent", "no_such_module_here:Backend", registry.GROUP),
        EntryPoint("nothing", f"{__name__}:Nothing", registry.GROUP),
        EntryPoint("data", f"{__name__}:CAPABLE", registry.GROUP),
        EntryPoint("other", "builtins:dict", registry.GROUP),
        EntryPoint("llvm", "no_such_module_here:Thief", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: importlib.metadata.EntryPoints(points).select(group=group))
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or __import__("types").ModuleType(__name__))
    for name, value in (("Stub", Stub), ("CAPABLE", CAPABLE)):
        monkeypatch.setattr(sys.modules[__name__], name, value, raising=False)


@pytest.mark.usefixtures("installed")
def test_an_installed_backend_is_found_by_its_name() -> None:
    assert registry.names() == (*registry.BUILT_IN, "absent", "data", "nothing", "other", "stub")
    assert isinstance(registry.create_backend("stub"), Stub)
    found = registry.create_backend("stub", size=5)
    assert isinstance(found, Stub)
    assert found.size == 5


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(registry.UnknownBackend, match=r"no backend is called 'lvm'; known: llvm, .*absent, .*stub"):
        registry.create_backend("lvm")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("absent", "No module named"),
        ("nothing", "no attribute 'Nothing'"),
        ("data", "not callable"),
        ("other", "gave a dict"),
        ("a:b.c", "No module"),
    ],
)
def test_a_registration_that_does_not_hold_is_broken(name: str, says: str) -> None:
    with pytest.raises(registry.BrokenBackend, match=says):
        registry.create_backend(name)


class Raising(Stub):
    def capabilities(self) -> Capabilities:
        raise KeyError("device 0")

    def version(self) -> str:
        raise OSError("no driver")


class Vague(Stub):
    def capabilities(self) -> Capabilities:
        return None  # type: ignore[return-value]

    def version(self) -> str:
        return 3  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("backend", "about", "says"),
    [
        (Raising, "capabilities", r"'mine': capabilities\(\) raised KeyError: 'device 0'"),
        (Raising, "version", r"'mine': version\(\) raised OSError: no driver"),
        (Vague, "capabilities", r"'mine': capabilities\(\) gave None, expected a Capabilities"),
        (Vague, "version", r"'mine': version\(\) gave 3, expected a str"),
    ],
)
def test_a_backend_that_does_not_say_what_it_is_is_broken(backend: type[Backend], about: str, says: str) -> None:
    ask = {"capabilities": registry.query_capabilities, "version": registry.query_version}[about]
    with pytest.raises(registry.BrokenBackend, match=says):
        ask("mine", backend())


@pytest.mark.parametrize("backend", [Raising, Vague])
def test_a_backend_that_does_not_say_what_it_can_do_is_not_introduced(
    backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "version", lambda self: "stub 1")
    with pytest.raises(registry.BrokenBackend, match=r"'mine': capabilities\(\)"):
        registry.describe_backend("mine", backend())


def test_a_backend_that_cannot_be_made_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Backend:
        raise RuntimeError("no device")

    monkeypatch.setattr(registry, "import_factory", lambda name: make)
    with pytest.raises(registry.BrokenBackend, match="'mine' cannot be made: RuntimeError: no device"):
        registry.create_backend("mine")


@pytest.mark.usefixtures("installed")
def test_no_package_takes_the_name_of_a_built_in_backend() -> None:
    assert registry.create_backend("llvm").name == "llvm"


def test_a_language_that_no_native_text_is_in_is_refused() -> None:
    with pytest.raises(ValueError, match="language must be one of c, opencl, cuda, llvm, got 'ptx'"):
        Capabilities(dtypes=(dt.float32,), language="ptx")
    declared = Capabilities(dtypes=(dt.float32,)).to_json() | {"language": "C"}
    with pytest.raises(ValueError, match="got 'C'"):
        Capabilities.of_json(declared)
