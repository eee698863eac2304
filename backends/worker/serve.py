"""The process in which a backend is judged: reads batches of cases, answers each as soon as it is done.

Started by `uops.backends.worker.client` as `python -m uops.backends.worker.serve READ WRITE LIFE`, the numbers being inherited pipe
ends; frames are those of `uops.backends.worker.frames`. Every exception is an answer; whatever ends the process is for the other
side to see. Nobody writes to LIFE: it closes when the other side ends, and this process and all of its group end then, too.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

from uops.backends.worker.frames import INTERRUPT, BadFrame, describe, name_of, one_line, pack, read_frame
from uops.spec.errors import UopsError

if TYPE_CHECKING:
    from uops.backends.contract import Backend
    from uops.backends.registry import Introduction


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        begin(int(arguments[2]))
        try:
            serve(requests, answers)
        except (BadFrame, MemoryError) as e:  # what was asked cannot be read
            sys.exit(describe(e))


def serve(requests: BinaryIO, answers: IO[bytes]) -> None:
    """The first frame says which backend, the others are batches."""
    first = read_frame(requests)
    if first is None:
        return
    settings = first[0]
    try:
        backend = load(settings)
        ready = pack(backend.introduction.to_json())
    except BaseException as e:  # also what foreign code raises to end a process
        answers.write(pack({"broken": explain(settings, e)}))
        return
    answers.write(ready)
    while (batch := read_frame(requests)) is not None:
        cases = batch[0].get("cases")
        if not isinstance(cases, list):
            raise BadFrame(f"expected cases, got {cases!r:.80}")
        for case in cases:
            answers.write(_answer(backend.backend, case, batch[1]))


def begin(life: int) -> None:
    """Let this process end with the one that started it, and before others where memory is short. Foreign code runs only after
    this."""
    faulthandler.enable(all_threads=False)
    end_with(life)
    offer_to_be_killed()


def end_with(life: int) -> None:
    """Kill the group of this process, which leads it, when the other end of the pipe is closed.

    The system does so, where it can: foreign code may let no other thread run. Elsewhere a thread does.
    """
    with suppress(AttributeError, OSError):
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_kill_group_after, args=(life,), daemon=True).start()


def _kill_group_after(life: int) -> None:
    """Wait for the end of a pipe; while this waits, it stays open, whatever foreign code closes."""
    with suppress(OSError):
        os.read(life, 1)
        os.killpg(0, signal.SIGKILL)


class LoadedBackend(NamedTuple):
    """A backend in this process, with its Introduction."""

    backend: Backend
    introduction: Introduction


def load(settings: dict[str, Any]) -> LoadedBackend:
    """Load the backend that the first frame names, under its limits. Raises whatever foreign code raises."""
    sys.path.extend(settings["path"])
    from uops.backends import registry

    limit(resource.RLIMIT_CORE, 0)
    if settings["memory"]:
        limit(resource.RLIMIT_AS, settings["memory"])
    backend = registry.get(settings["backend"], **settings["options"])
    return LoadedBackend(backend, registry.introduce(settings["backend"], backend))


def explain(settings: Mapping[str, Any], e: BaseException) -> str:
    """Explain in one line why the backend that a first frame names cannot be loaded."""
    if isinstance(e, UopsError):
        return one_line(str(e))
    return one_line(f"{name_of(settings)}: {INTERRUPT if isinstance(e, KeyboardInterrupt) else describe(e)}")


def _answer(backend: Any, case: dict[str, Any], body: bytes) -> bytes:
    """Run one case; the frame that reports it."""
    from uops.backends.arrays import decode, encode_result
    from uops.spec.errors import Trap, Unsupported
    from uops.spec.ir.text import parse
    from uops.spec.result import Result

    start = time.perf_counter()

    def report(status: str, message: str = "", header: Any = None, data: bytes = b"") -> bytes:
        seconds = time.perf_counter() - start
        told = {"status": status, "message": message, "result": header, "seconds": seconds}
        return pack(told | _applied() | _validated(), data)

    try:
        found = backend.run(parse(case["program"]), decode(case["inputs"], body))
        if not isinstance(found, Result):
            return report("error", f"the backend gave a {type(found).__name__}, not a Result")
        return report("ok", "", *encode_result(found))
    except Trap as e:
        return report("trap", str(e))
    except Unsupported as e:
        return report("unsupported", str(e))
    except Exception as e:
        return report("error", _describe(e))


def _applied() -> dict[str, Any]:
    """The moves of schedules that were drawn for this case, where any were."""
    forced = sys.modules.get("uops.compiler.passes.optimize.search.random_schedules")
    found = {} if forced is None else forced.taken()
    return {"applied": found} if found else {}


def _validated() -> dict[str, Any]:
    """What was proved of this case's kernels, where that was asked for."""
    launch = sys.modules.get("uops.compiler.validate.launch")
    found = {} if launch is None else launch.taken()
    return {"validated": found} if found else {}


def _describe(e: BaseException) -> str:
    """The exception and where it came from, innermost frames last."""
    frames = traceback.extract_tb(e.__traceback__)[-4:]
    places = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{describe(e)} [{one_line(places)}]"


def offer_to_be_killed() -> None:
    """Ask the system, when it runs out of memory, to end this process before any that is not foreign code's."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")


def limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def end_with_parent(parent: int) -> None:
    """A kernel that never ends would outlive a killed parent: leave when this process has been orphaned."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
