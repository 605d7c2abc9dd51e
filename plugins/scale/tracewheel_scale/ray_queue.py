"""The trajectory queue for workers on other machines: a Ray actor that owns the file, and its handle at a worker.

The actor lives on the driver's machine, where the file is. A published adapter travels as bytes through Ray's object
store, once to each machine, is checked by its digest and kept in a folder there.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import (
    ConfigError,
    InfrastructureError,
    Order,
    PolicyRef,
    Trajectory,
    TrajectoryQueue,
    WorkerSections,
    digest_of,
    worker_code,
)

ASK_SECONDS = 0.2  # pause between two questions for a newer policy, or for orders when there were none
KEPT_ADAPTERS = 8
ACTOR_THREADS = 4
RETRIED = -1


@dataclass(frozen=True)
class Published:
    """A published policy. `files` refers to names and bytes of its adapter's files, if it has an adapter."""

    policy: PolicyRef
    digest: str
    files: Any


class QueueOwner:
    """The actor's methods: the queue's, and the newest policy with its adapter.

    Args:
        path: The queue's file.
        root: The folder that paths of policies start from, where they are relative.
    """

    def __init__(self, path: str, root: str) -> None:
        self._queue = TrajectoryQueue(Path(path))
        self._root = Path(root)
        self._published: Published | None = None

    def published(self) -> Published:
        """The newest policy. Its adapter enters the object store at the first call after it was published."""
        import ray

        policy = absolute(self._queue.policy(), self._root)
        known = self._published
        if known is None or known.policy != policy:
            folder = Path(policy.adapter) if policy.adapter else None
            files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())} if folder else None
            known = Published(policy, digest_of(folder) if folder else "", ray.put(files) if files else None)
            self._published = known
        return known

    def lease(self, worker: str, most: int) -> list[Order]:
        return self._queue.lease(worker, most)

    def heartbeat(self, worker: str) -> bool:
        return self._queue.heartbeat(worker)

    def complete(self, order: Order, worker: str, trajectories: list[Trajectory]) -> bool:
        return self._queue.complete(order, worker, trajectories)


def start_owner(queue: Path) -> Any:
    """Start the actor on this machine, which belongs to the cluster. Returns its handle.

    Ray restarts it when it dies, and repeats all calls but leases: orders that were leased by a call whose answer got lost
    come back when the worker that made it ends.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": RETRIED, "max_concurrency": ACTOR_THREADS, "scheduling_strategy": here}
    return ray.remote(QueueOwner).options(**options).remote(str(queue.resolve()), str(Path.cwd()))


def absolute(policy: PolicyRef, root: Path) -> PolicyRef:
    """The policy with absolute paths; a base that is not on this machine's disk keeps its name."""
    base = root / policy.base
    adapter = str(root / policy.adapter) if policy.adapter else None
    return PolicyRef(str(base) if base.exists() else policy.base, adapter, policy.version)


class RemoteQueue:
    """The queue, for a worker anywhere in the cluster. It is a `RolloutSource`.

    Args:
        owner: The actor's handle.
        shared: Whether adapters are read where the driver has them, because servers elsewhere read them too.
        adapters: Where adapters are kept on this machine; by default a folder of the user's below the temporary one.
    """

    def __init__(self, owner: Any, *, shared: bool = False, adapters: Path | None = None) -> None:
        self._owner = owner
        self._shared = shared
        self._adapters = adapters or Path(tempfile.gettempdir()) / f"tracewheel-adapters-{getpass.getuser()}"
        self._policy: PolicyRef | None = None
        self._told: tuple[int, str] = (-1, "")
        self._ask_policy = self._ask_orders = 0.0

    def policy(self) -> PolicyRef:
        """As a `RolloutSource`."""
        now = time.monotonic()
        if self._policy is None or now >= self._ask_policy:
            self._ask_policy = now + ASK_SECONDS
            published: Published = self._ask("published", tries=RETRIED)
            version = (published.policy.version, published.digest)
            if self._policy is None or version != self._told:
                self._policy, self._told = self._at_hand(published), version
        return self._policy

    def lease(self, worker: str, most: int) -> list[Order]:
        """As a `RolloutSource`."""
        if time.monotonic() < self._ask_orders:
            return []
        orders: list[Order] = self._ask("lease", worker, most)
        if not orders:
            self._ask_orders = time.monotonic() + ASK_SECONDS
        return orders

    def heartbeat(self, worker: str) -> bool:
        """As a `RolloutSource`."""
        return bool(self._ask("heartbeat", worker, tries=RETRIED))

    def complete(self, order: Order, worker: str, trajectories: list[Trajectory]) -> bool:
        """As a `RolloutSource`."""
        return bool(self._ask("complete", order, worker, trajectories, tries=RETRIED))

    def _ask(self, method: str, *arguments: Any, tries: int = 0) -> Any:
        import ray

        with ray_errors():
            return ray.get(getattr(self._owner, method).options(max_task_retries=tries).remote(*arguments))

    def _at_hand(self, published: Published) -> PolicyRef:
        """The policy with its adapter in a folder of this machine.

        Raises:
            InfrastructureError: the adapter did not arrive, or is not on the shared disk.
        """
        if published.files is None:
            return published.policy
        if self._shared:
            where = Path(published.policy.adapter or "")
            if not where.is_dir() or digest_of(where) != published.digest:
                raise InfrastructureError(f"{where}: not readable here; work_dir must be on a disk that all machines share")
            return published.policy
        import ray

        folder = self._adapters / published.digest
        if not folder.is_dir() or digest_of(folder) != published.digest:
            with ray_errors():
                files: dict[str, bytes] = ray.get(published.files)
            _write(folder, files)
            if digest_of(folder) != published.digest:
                raise InfrastructureError(f"{folder}: the adapter of version {published.policy.version} did not arrive whole")
        os.utime(folder)
        _forget_old(self._adapters)
        return PolicyRef(published.policy.base, str(folder), published.policy.version)


def check_code(config: WorkerSections, expected: str) -> None:
    """Check that this machine has the driver's code.

    Raises:
        ConfigError: its code differs.
    """
    if worker_code(config) != expected:
        raise ConfigError("this machine of the Ray cluster has another version of Tracewheel, or of a plugin, than the driver")


@contextlib.contextmanager
def ray_errors() -> Iterator[None]:
    """Turn Ray's errors into `InfrastructureError`; errors that the actor itself raised stay unchanged."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        raise error.cause from error  # the queue's own error, as its class
    except RayError as error:
        raise InfrastructureError(f"the trajectory queue on the driver's machine cannot be reached: {error}") from error


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder that is complete or absent; several workers of a machine may write it at once."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        with contextlib.suppress(OSError):  # another worker was faster; the digest is checked afterwards
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _forget_old(adapters: Path) -> None:
    """Delete all adapters but those used last."""
    found = []
    for folder in adapters.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(found, reverse=True)[KEPT_ADAPTERS:]:
        shutil.rmtree(folder, ignore_errors=True)
