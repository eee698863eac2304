"""Foreign code loads in a process of its own, in every command: whatever it does there, one line and a status say so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

import uops as package
from uops.backends import registry
from uops.cli import main
from uops.cli.common import _complete_backend
from uops.spec.errors import UopsError

Uops = Callable[..., Result]

GOOD = """
from uops.backends.contract import Backend, Capabilities, CompilerBackend
from uops.backends.llvm.backend import LlvmBackend

class Good(LlvmBackend):
    name = "good"
"""

#: What a module does, and a word of the message.
MODULES = {
    "leaves": ("raise SystemExit(0)", "SystemExit"),
    "leaves_3": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "base": ("raise BaseException('bare')", "BaseException: bare"),
    "group": ("raise BaseExceptionGroup('several', [SystemExit(0)])", "BaseExceptionGroup: several"),
    "syntax": ("def f(:\n", "SyntaxError"),
    "dies": ("import os; os._exit(0)", "exited with status 0"),
    "kills": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
    "kills_group": ("import os, signal; os.killpg(0, signal.SIGTERM)", "ended by SIGTERM"),
    "prints": ("import sys, os, time; os.write(int(sys.argv[2]), b'a line\\n'); time.sleep(1000)", "begin with b'a li'"),
    "floods": ("import sys, os\nwhile True: os.write(int(sys.argv[2]), b'\\0' * 4096)", "cannot be read"),
    "swells": (
        "import sys, os, struct\nfrom uops.backends.worker.frames import MARK\n"
        "os.write(int(sys.argv[2]), MARK + struct.pack('<IQ', 2, 1 << 31))\nwhile True: os.write(int(sys.argv[2]), bytes(4096))",
        "at most 67,108,864 and 0 are read",
    ),
    "hangs": ("import time; time.sleep(1000)", "no answer within"),
    "closes": ("import os; os.closerange(0, 1000)", "did not start"),
    "babbles": ("import sys, os; os.write(int(sys.argv[2]), b'\\xff' * 64); os._exit(0)", "cannot be read"),
    "escapes": ("raise ValueError('\\x1b[31m\\u202e\\ud800')", "\\x1b[31m\\u202e\\ud800"),
    "mute": ("class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd", "Odd"),
    "empty": ("", "no attribute 'Good'"),
    "data": ("Good = 3", "not callable"),
    "other": ("Good = dict", "gave a dict"),
    "made_raises": ("def Good(): raise RuntimeError('no device')", "no device"),
    "made_leaves": ("def Good(): raise SystemExit(0)", "SystemExit"),
    "vague": (f"{GOOD}    def capabilities(self): return 3", "capabilities() gave 3"),
    "wrong": (f"{GOOD}    def capabilities(self): return Capabilities(dtypes=(3,))", "capabilities() gave fields"),
    "cannot": (f"{GOOD}    def capabilities(self): raise SystemExit(0)", "SystemExit"),
    "long": (f"{GOOD}    def version(self): return 'x' * 10_000_000", "10,000,000 characters"),
    "unsaid": (f"{GOOD}    def version(self): raise SystemExit(0)", "SystemExit"),
}  # fmt: skip

COMMANDS = {
    "run": ("run", "program.uops"),
    "compile": ("compile", "program.uops"),
    "view": ("view", "program.uops"),
    "search": ("search", "program.uops", "--seconds", "1"),
    "bisect": ("bisect", "program.uops"),
    "stages": ("stages", "--rows", "Movement/Flip"),
    "conform": ("conform", "--rows", "Movement/Flip"),
    "exhaustive": ("conform", "--tier", "exhaustive", "--rows", "Elementwise/Trunc"),
    "fuzz": ("fuzz", "-n", "1"),
}


def judge(result: Result, word: str, status: int = 2) -> None:
    """One line says what is wrong, and so does the status."""
    assert result.exit_code == status, result.output
    assert word in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("Error: ") and "\x1b" not in result.stderr and result.stdout == ""
    assert "<frozen" not in result.stderr and "Traceback" not in result.stderr


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Callable[[str], str]:
    """Write a module; `NAME:Good` is the backend of it."""
    monkeypatch.setenv("UOPS_START_SECONDS", "8")

    def write(source: str) -> str:
        (tmp_path / "stranger.py").write_text(source, errors="surrogatepass")
        return "stranger:Good"

    return write


@pytest.mark.parametrize("what", MODULES)
def test_a_module_that_does_not_load_is_one_line(uops: Uops, module: Callable[[str], str], what: str, monkeypatch) -> None:
    source, word = MODULES[what]
    name = module(source)
    if what == "hangs":
        monkeypatch.setenv("UOPS_START_SECONDS", "1")
    result = uops("conform", "-b", name, "--rows", "Movement/Flip")
    judge(result, word)
    assert name in result.stderr and "stranger" not in sys.modules


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_loads_foreign_code_elsewhere(uops: Uops, module: Callable[[str], str], command: str, tmp_path: Path) -> None:
    judge(uops(*COMMANDS[command], "-b", module("raise SystemExit(0)")), "SystemExit")
    assert "stranger" not in sys.modules
    assert not (tmp_path / "report").exists()


#: What names no backend by itself, and a command of each way in which commands load one.
NAMELESS = ("dies", "kills_group", "interrupts", "prints")


@pytest.mark.parametrize("what", NAMELESS)
@pytest.mark.parametrize("command", ["compile", "fuzz", "exhaustive"])
def test_what_a_module_does_is_said_of_its_name(uops: Uops, module: Callable[[str], str], command: str, what: str) -> None:
    source, word = MODULES[what]
    result = uops(*COMMANDS[command], "-b", module(source))
    judge(result, word)
    assert result.stderr.startswith("Error: stranger:Good: ")


#: Foreign code that hangs when it runs a program, and when it compiles one, where it lets no other thread run.
RUNS = f"{GOOD}    def run(self, *a):\n        ready(); time.sleep(1000)\n"
COMPILES = f"""{GOOD}
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.target.render = self.no
    def no(self, *a, **k):
        ready(); ctypes.PyDLL(None).sleep(1000)
"""
#: Commands that wait for it.
HANGING = {
    "conform, at import": (("conform", "--rows", "Movement/Flip"), "import time\nready()\ntime.sleep(1000)\n"),
    "conform": (("conform", "--rows", "Movement/Flip"), RUNS),
    "exhaustive": (("conform", "--tier", "exhaustive", "--rows", "Elementwise/Trunc", "-j", "1"), RUNS),
    "compile": (("compile", "program.uops"), COMPILES),
    "fuzz": (("fuzz", "-n", "9", "-j", "1"), COMPILES),
}
READY = """
import ctypes, os, time
def ready():
    with open("ready", "a") as f:
        print(os.getpid(), file=f)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "killed"])
@pytest.mark.parametrize("what", HANGING)
def test_a_command_whose_backend_hangs_ends_at_once_and_leaves_no_process(
    module: Callable[[str], str], what: str, number: signal.Signals, tmp_path: Path
) -> None:
    """A session of its own keeps the terminal's Ctrl-C from foreign code: the command ends it."""
    arguments, source = HANGING[what]
    name, ready = module(READY + source), tmp_path / "ready"
    command = [sys.executable, "-m", "uops", *arguments, "-b", name]
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), "UOPS_START_SECONDS": "60"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, process_group=0) as child:
        assert holds(lambda: ready.exists() and ready.read_text().endswith("\n")), child.communicate(timeout=1)
        began = time.monotonic()
        os.killpg(child.pid, number)
        words = child.communicate(timeout=20)[1]
        assert time.monotonic() - began < 15
    assert holds(lambda: not any(map(is_alive, ready.read_text().split())))
    assert child.returncode == (130 if number == signal.SIGINT else -number), words
    assert "Traceback" not in words


def holds(claim: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Return True once the claim holds, False if it does not in time."""
    deadline = time.monotonic() + seconds
    while not (found := claim()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "word"),
    [("../x:y", "expected module:attribute"), ("x y:z", "expected module:attribute"), ("lvm", "did you mean llvm")],
)
def test_a_name_that_names_nothing_is_one_line(uops: Uops, program: str, command: str, name: str, word: str) -> None:
    result = uops(*COMMANDS[command], "-b", name)
    assert result.exit_code == 2 and word in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["compile", "view", "search", "bisect", "run"])
def test_a_foreign_target_does_what_ours_does(uops: Uops, module: Callable[[str], str], command: str, tmp_path: Path) -> None:
    name = module(f"print('noise')\n{GOOD}")
    ours = uops(*COMMANDS[command], "-b", "llvm")
    page = (tmp_path / "program.html").read_text() if command == "view" else ""
    found = uops(*COMMANDS[command], "-b", name)
    told = [line for line in found.stderr.splitlines() if not (command == "view" and " after " in line)]  # how far it is
    assert (found.exit_code, told) == (0, [])
    if command != "search":  # where times differ
        assert found.stdout == ours.stdout
    assert not page or (tmp_path / "program.html").read_text() == page


@pytest.mark.parametrize(
    ("does", "word"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise RuntimeError('\\x1b')", "RuntimeError: \\x1b"),
        ("import os; os._exit(0)", "exited with status 0"),
    ],
)
def test_foreign_code_that_breaks_off_a_command_is_one_line(uops: Uops, module: Callable[[str], str], does: str, word: str) -> None:
    name = module(f"{GOOD}    def __init__(self):\n        super().__init__()\n        self.target.render = self.no\n"
                  f"    def no(self, *a, **k):\n        {does}\n")  # fmt: skip
    judge(uops("compile", "program.uops", "-b", name), word, 1)


def test_usage_errors_of_a_foreign_target_are_those_of_ours(uops: Uops, module: Callable[[str], str]) -> None:
    name = module(GOOD)
    ours, found = (uops("compile", "program.uops", "-b", b, "--pass", "nothing") for b in ("llvm", name))
    assert (found.exit_code, found.stderr) == (ours.exit_code, ours.stderr) and ours.exit_code == 2


def test_a_start_limit_that_is_no_time_is_one_line(uops: Uops, module: Callable[[str], str], monkeypatch) -> None:
    name = module(GOOD)
    monkeypatch.setenv("UOPS_START_SECONDS", "soon")
    judge(uops("run", "program.uops", "-b", name), "UOPS_START_SECONDS must be a positive number of seconds, got 'soon'")


def test_a_version_with_a_lone_surrogate_reaches_report_and_page(uops: Uops, module: Callable[[str], str], tmp_path: Path) -> None:
    name = module(f"{GOOD}    def version(self): return 'good \\ud800\\x1b[31m'")
    for _ in range(2):  # and again from the journal
        result = uops("conform", "-b", name, "--rows", "Movement/Flip", "--journal", "journal")
        assert result.exit_code == 0, result.output
        assert "good \\ud800\\x1b[31m" in result.stdout
    assert "good \\ud800" in (tmp_path / "report/index.html").read_text()


def test_in_a_library_what_a_module_raises_is_broken_backend(module: Callable[[str], str], tmp_path: Path) -> None:
    module("raise SystemExit(0)")
    code = """
import uops
from uops.backends.registry import BrokenBackend
try:
    uops.compile(uops.parse("%0 = const 1 : i32"), "stranger:Good")
except BrokenBackend as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "SystemExit" in done.stdout and not done.stderr


def test_completion_offers_each_backend_once() -> None:
    offered = _complete_backend(click.Context(main), click.Argument(["x"]), "")
    assert len(offered) == len(set(offered)) and {"interp", "llvm"} <= set(offered)
    assert _complete_backend(click.Context(main), click.Argument(["x"]), "inte") == ["interp"]


@pytest.mark.parametrize(("name", "meant"), [("lvm", "llvm"), ("c:gc", "c:gcc"), ("tinygard", "tinygrad"), ("INTERP", "interp")])
def test_a_name_that_is_nearly_one_is_guessed(name: str, meant: str) -> None:
    with pytest.raises(UopsError, match=f"did you mean .*{meant}"):
        registry.create_backend(name)
    with pytest.raises(UopsError) as caught:
        registry.locate_factory("nobody")
    assert "did you mean" not in str(caught.value)
