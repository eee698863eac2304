"""The process in which a backend is judged: reads batches of cases, answers each as soon as it is done.

Started by `uops.backends.worker` as `python -m uops.backends.serve READ WRITE`, the two numbers being inherited pipe ends. Frames
are a JSON header and a binary body. Every exception is an answer; whatever ends the process is for the other side to see.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import struct
import sys
import threading
import time
import traceback
from typing import IO, Any, BinaryIO

_SIZES = struct.Struct("<IQ")

Frame = tuple[dict[str, Any], bytes]


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _SIZES.pack(len(text), len(body)) + text + body


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame; None at the end of the stream."""
    sizes = _whole(stream, _SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    text, body = _SIZES.unpack(sizes)
    data = _whole(stream, text + body)
    return (json.loads(data[:text]), data[text:]) if len(data) == text + body else None


def _whole(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, fewer at the end of the stream: a pipe without a buffer gives what is there."""
    found = bytearray()
    while len(found) < size and (more := stream.read(size - len(found))):
        found += more
    return bytes(found)


def split_frame(data: bytes | bytearray) -> tuple[Frame, int] | None:
    """The first frame in `data` and its length, or None while it is incomplete."""
    if len(data) < _SIZES.size:
        return None
    text, body = _SIZES.unpack_from(data)
    start, end = _SIZES.size + text, _SIZES.size + text + body
    if len(data) < end:
        return None
    return (json.loads(bytes(data[_SIZES.size : start])), bytes(data[start:end])), end


def main(arguments: list[str]) -> None:
    """Serve until the request pipe is closed."""
    with open(int(arguments[0]), "rb") as requests, open(int(arguments[1]), "wb", buffering=0) as answers:
        serve(requests, answers)


def serve(requests: BinaryIO, answers: IO[bytes]) -> None:
    """The first frame says which backend, the others are batches."""
    faulthandler.enable(all_threads=False)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    first = read_frame(requests)
    if first is None:
        return
    settings = first[0]
    sys.path.extend(settings["path"])
    try:
        from uops.backends import registry

        limit(resource.RLIMIT_CORE, 0)
        if settings["memory"]:
            limit(resource.RLIMIT_AS, settings["memory"])
        backend = registry.get(settings["backend"], **settings["options"])
        ready = pack({"ready": registry.version(settings["backend"], backend)})
    except Exception as e:
        answers.write(pack({"broken": _describe(e)}))
        return
    answers.write(ready)
    while (batch := read_frame(requests)) is not None:
        for case in batch[0]["cases"]:
            answers.write(_answer(backend, case, batch[1]))


def _answer(backend: Any, case: dict[str, Any], body: bytes) -> bytes:
    """Run one case; the frame that reports it."""
    from uops.backends.arrays import decode, encode_result
    from uops.spec.errors import Trap, Unsupported
    from uops.spec.result import Result
    from uops.spec.text import parse

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
    forced = sys.modules.get("uops.compiler.optimize.forced")
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
    return f"{type(e).__name__}: {e} [{places}]"


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
