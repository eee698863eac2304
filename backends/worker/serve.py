"""The worker process of a backend: it reads batches of cases and answers each case as soon as it is done.

`uops.backends.worker.client` starts it as `python -m uops.backends.worker.serve READ WRITE LIFE`, where the numbers are inherited
pipe ends. Frames are those of `uops.backends.worker.frames`. Every exception is an answer; the client sees the end of the process
itself. Nobody writes to LIFE: it closes when the client ends, and this process and its group end with it.
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

from uops.backends.worker.frames import (
    INTERRUPT,
    BadFrame,
    backend_name_of,
    describe_exception,
    one_line,
    pack_frame,
    read_frame_or_none_at_end_or_cut,
)
from uops.spec.errors import UopsError

if TYPE_CHECKING:
    from uops.backends.contract import Backend
    from uops.backends.registry import BackendInfo


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        tie_to_parent_and_raise_oom_score(int(arguments[2]))
        try:
            load_backend_and_serve_batches(requests, answers)
        except (BadFrame, MemoryError) as e:  # an unreadable request
            sys.exit(describe_exception(e))


def load_backend_and_serve_batches(requests: BinaryIO, answers: IO[bytes]) -> None:
    """Load the backend that the first frame names, then answer the batches that follow."""
    frame = read_frame_or_none_at_end_or_cut(requests)
    if frame is None:
        return
    settings = frame[0]
    try:
        backend = load_backend_under_memory_limit(settings)
        greeting = pack_frame(backend.backend_info.to_json())
    except BaseException as e:  # including SystemExit and KeyboardInterrupt of foreign code
        answers.write(pack_frame({"broken": explain_load_failure(settings, e)}))
        return
    answers.write(greeting)
    while (batch := read_frame_or_none_at_end_or_cut(requests)) is not None:
        cases = batch[0].get("cases")
        if not isinstance(cases, list):
            raise BadFrame(f"expected cases, got {cases!r:.80}")
        for case in cases:
            answers.write(_run_case_and_pack_outcome(backend.backend, case, batch[1]))


def tie_to_parent_and_raise_oom_score(life_pipe: int) -> None:
    """Let this process end with its parent, and before others when memory is short. Call it before any foreign code runs."""
    faulthandler.enable(all_threads=False)
    arrange_group_kill_on_close(life_pipe)
    raise_oom_score()


def arrange_group_kill_on_close(life_pipe: int) -> None:
    """Kill the group that this process leads when the other end of the pipe is closed.

    The system does so where it can, since foreign code may let no other thread run. Elsewhere, a thread does.
    """
    with suppress(AttributeError, OSError):
        fcntl.fcntl(life_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life_pipe, fcntl.F_SETFL, fcntl.fcntl(life_pipe, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_kill_group_when_closed, args=(life_pipe,), daemon=True).start()


def _kill_group_when_closed(life_pipe: int) -> None:
    """Wait for the end of a pipe, then kill the group. The wait keeps the pipe open, even if foreign code closes it."""
    with suppress(OSError):
        os.read(life_pipe, 1)
        os.killpg(0, signal.SIGKILL)


class LoadedBackend(NamedTuple):
    """A backend in this process, with its BackendInfo."""

    backend: Backend
    backend_info: BackendInfo


def load_backend_under_memory_limit(settings: dict[str, Any]) -> LoadedBackend:
    """Load the backend that the first frame names, under its limits. Raises any exception of foreign code."""
    sys.path.extend(settings["path"])
    from uops.backends import registry  # late: foreign code may load with it, after the path is set

    set_resource_limit(resource.RLIMIT_CORE, 0)
    if settings["memory"]:
        set_resource_limit(resource.RLIMIT_AS, settings["memory"])
    backend = registry.create_backend(settings["backend"], **settings["options"])
    return LoadedBackend(backend, registry.describe_backend(settings["backend"], backend))


def explain_load_failure(settings: Mapping[str, Any], e: BaseException) -> str:
    """Explain in one line why the backend that a first frame names cannot be loaded."""
    if isinstance(e, UopsError):
        return one_line(str(e))
    return one_line(f"{backend_name_of(settings)}: {INTERRUPT if isinstance(e, KeyboardInterrupt) else describe_exception(e)}")


def _run_case_and_pack_outcome(backend: Any, case: dict[str, Any], body: bytes) -> bytes:
    """Run one case, and return the frame with its outcome."""
    # late: a backend that does not load needs none of these
    from uops.backends.arrays import decode_arrays, encode_result
    from uops.backends.testing.calls import InvocationMode, run_in_mode_and_check_memory
    from uops.backends.testing.lowered import run_in_dialect
    from uops.backends.testing.programs import compile_uncompiled_programs
    from uops.spec.errors import Trap, Unsupported
    from uops.spec.ir.text import parse, show
    from uops.spec.result import Result
    from uops.spec.verify.dialects import Dialect

    start = time.perf_counter()

    def report(status: str, message: str = "", header: Any = None, data: bytes = b"") -> bytes:
        seconds = time.perf_counter() - start
        fields = {"status": status, "message": message, "result": header, "seconds": seconds}
        return pack_frame(fields | _take_schedule_move_counts_as_reply_field() | _take_validation_counts_as_reply_field(), data)

    try:
        graph = parse(case["program"])
        if case.get("precompile"):
            graph = parse(show(compile_uncompiled_programs(backend, graph)))
        inputs = decode_arrays(case["inputs"], body)
        dialect = case.get("dialect")

        def run(given: Mapping[str, Any]) -> Any:
            return run_in_dialect(backend, graph, given, Dialect(dialect)) if dialect else backend.run(graph, given)

        result = run_in_mode_and_check_memory(run, inputs, InvocationMode(case.get("call", InvocationMode.PLAIN)))
        if not isinstance(result, Result):
            return report("error", f"the backend gave a {type(result).__name__}, not a Result")
        return report("ok", "", *encode_result(result))
    except Trap as e:
        return report("trap", str(e))
    except Unsupported as e:
        return report("unsupported", str(e))
    except Exception as e:
        return report("error", _describe_with_traceback(e))


def _take_schedule_move_counts_as_reply_field() -> dict[str, Any]:
    """Return the counts of random schedule moves of this case, if there are any."""
    random_schedules = sys.modules.get("uops.compiler.passes.optimize.search.random_schedules")
    counts = {} if random_schedules is None else random_schedules.take_and_reset_optop_counts()
    return {"applied": counts} if counts else {}


def _take_validation_counts_as_reply_field() -> dict[str, Any]:
    """Return the counts of claims proved of this case's kernels, if kernels are validated."""
    launch = sys.modules.get("uops.compiler.validate.launch")
    counts = {} if launch is None else launch.take_validation_counts()
    return {"validated": counts} if counts else {}


def _describe_with_traceback(e: BaseException) -> str:
    """Describe an exception and the innermost frames that raised it, innermost first."""
    frames = traceback.extract_tb(e.__traceback__)[-4:]
    locations = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{describe_exception(e)} [{one_line(locations)}]"


def raise_oom_score() -> None:
    """Ask the system to end this process before others when it runs out of memory."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")


def set_resource_limit(resource_id: int, value: int) -> None:
    """Lower the soft limit of a resource to `value`, within its hard limit."""
    hard = resource.getrlimit(resource_id)[1]
    resource.setrlimit(resource_id, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def poll_parent_and_exit_when_orphaned(parent_pid: int) -> None:
    """Poll the parent, and exit when this process is orphaned: an endless kernel would outlive a killed parent."""
    while os.getppid() == parent_pid:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
