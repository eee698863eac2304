"""An existing Dask cluster, whose workers have this package.

Takes: the address of a scheduler, and functions of this package with arguments. Gives: what the functions return on some worker. A
call that was lost with its worker is made again on another one, so that functions must not have effects that outlive them. Only
this module uses `distributed`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from uops.spec.errors import UopsError
from uops.spec.extras import install_command

#: Seconds in which a scheduler must be reached.
_PATIENCE = 30
#: Seconds between two questions whether there are workers, and maximum seconds until an answer.
_PERIOD = 5.0
#: Seconds between two questions of a worker whether the run has ended.
_STOP_PERIOD = 2.0


class NoCluster(UopsError):
    """A cluster that cannot be used: its scheduler cannot be reached or goes away, it has no workers, its workers differ,
    or `distributed` is not installed.
    """


class ClusterStopped(UopsError):
    """The end of a call because `Cluster.stop` was called."""


class Cluster:
    """All threads of all workers of a cluster; `thread_count` is their number at the start."""

    def __init__(self, address: str) -> None:
        """Connect to the scheduler. Raises NoCluster."""
        try:
            import distributed  # late: it is optional
            from distributed.comm import get_address_host_port
        except ImportError as e:
            raise NoCluster(f"a cluster needs the package distributed: {install_command('cluster')}") from e
        self.address = address
        #: Name under which workers ask whether this run has ended (`make_stop_check`).
        self.stop_name = f"uops-stop-{uuid.uuid4().hex}"
        self._waits, self._ask_again = "", 0.0
        try:
            get_address_host_port(address)  # checked first: a client with an invalid address takes a minute to close
            self._client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as e:
            raise NoCluster(f"there is no scheduler at {address}: {e}") from e
        self.thread_count = sum(self._client.nthreads().values())
        if not self.thread_count:
            self.close()
            raise NoCluster(f"the scheduler at {address} has no workers")
        self._lock = threading.Lock()
        self._futures: set[Any] = set()
        self._stopped = False

    def call_on_every_worker(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function on each worker; return the answers by the worker's address."""
        futures = {
            w: self._client.submit(function, *arguments, workers=[w], pure=False, allow_other_workers=False)
            for w in self._client.nthreads()
        }
        return {w: f.result() for w, f in futures.items()}

    def require_same_on_workers(self, describe: Callable[..., dict[str, Any]], *arguments: Any, here: dict[str, Any]) -> None:
        """Raise NoCluster, and close, if a worker describes what decides results differently than this machine does."""
        for worker, there in self.call_on_every_worker(describe, *arguments).items():
            if different := next((k for k in here if here[k] != there[k]), None):
                self.close()
                raise NoCluster(f"{worker} has {different} {there[different]}, and this machine has {here[different]}")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on any free worker, and wait for its result.

        Raises what the function raises, ClusterStopped after `stop`, and NoCluster if the scheduler has gone.
        """
        with self._lock:
            if self._stopped:
                raise ClusterStopped("the run ends")
            future = self._client.submit(function, *arguments, pure=False)
            self._futures.add(future)
        try:
            return future.result()
        except BaseException as e:
            if self._stopped:
                raise ClusterStopped("the run ends") from None
            if isinstance(e, CancelledError | OSError):  # cancelled, but not by `stop`
                raise NoCluster(f"the scheduler at {self.address} has gone; the same command goes on from the journal") from e
            raise
        finally:
            with self._lock:
                self._futures.discard(future)

    @property
    def missing_workers_message(self) -> str:
        """A text if the cluster has no workers, else "". The scheduler is asked every few seconds."""
        if time.monotonic() >= self._ask_again:
            try:
                idle = not self._client.nthreads(callback_timeout=_PERIOD)
            except (OSError, TimeoutError):
                idle = False  # a lost scheduler shows at the calls
            self._waits = f"{self.address} has no workers" if idle else ""
            self._ask_again = time.monotonic() + _PERIOD
        return self._waits

    def stop(self) -> None:
        """Cancel all calls, from any thread."""
        with self._lock:
            self._stopped = True
            waiting = list(self._futures)
        for future in waiting:
            future.cancel()
        with contextlib.suppress(OSError, TimeoutError):  # a scheduler that has gone has ended the calls
            self._client.sync(self._client.scheduler.event_set, name=self.stop_name, callback_timeout=_PERIOD)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def make_stop_check(stop_name: str) -> Callable[[], bool]:
    """Return a function that says, on a worker, whether a run has ended. A scheduler that has gone counts as an end."""
    import distributed  # late: it is optional

    event = distributed.Event(stop_name)
    asked_at, has_ended = -_STOP_PERIOD, False

    def check() -> bool:
        nonlocal asked_at, has_ended
        if not has_ended and time.monotonic() >= asked_at + _STOP_PERIOD:
            try:
                has_ended = bool(event.is_set())
            except (OSError, TimeoutError, CancelledError):
                has_ended = True
            asked_at = time.monotonic()
        return has_ended

    return check


__all__ = ["Cluster", "ClusterStopped", "NoCluster", "make_stop_check"]
