"""The process in which a backend is judged: reads batches of cases, answers each as soon as it is done.

Started by `uops.backends.worker.client` as `python -m uops.backends.worker.serve READ WRITE`, the two numbers being inherited pipe
ends; frames are those of `uops.backends.worker.frames`. Every exception is an answer; whatever ends the process is for the other
side to see.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

from uops.backends.worker.frames import BadFrame, describe, one_line, pack, read_frame

if TYPE_CHECKING:
    from uops.backends.contract import Backend
    from uops.backends.registry import Introduction


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        try:
            serve(requests, answers)
        except (BadFrame, MemoryError) as e:  # what was asked cannot be read
            sys.exit(describe(e))


def serve(requests: BinaryIO, answers: IO[bytes]) -> None:
    """The first frame says which backend, the others are batches."""
    begin()
    first = read_frame(requests)
    if first is None:
        return
    settings = first[0]
    try:
        backend = load(settings)
        ready = pack(backend.introduction.to_json())
    except BaseException as e:  # also what foreign code raises to end a process
        answers.write(pack({"broken": _explain(e)}))
        return
    answers.write(ready)
    while (batch := read_frame(requests)) is not None:
        cases = batch[0].get("cases")
        if not isinstance(cases, list):
            raise BadFrame(f"expected cases, got {cases!r:.80}")
        for case in cases:
            answers.write(_answer(backend.backend, case, batch[1]))


def begin() -> None:
    """Let this process end with its parent, and before others where memory is short. Foreign code runs only after this."""
    faulthandler.enable(all_threads=False)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    offer_to_be_killed()


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


def _explain(e: BaseException) -> str:
    """Explain why a backend cannot be loaded, with the innermost frames unless the registry raised the error."""
    from uops.backends.registry import BrokenBackend, UnknownBackend

    return one_line(str(e)) if isinstance(e, BrokenBackend | UnknownBackend) else _describe(e)


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
