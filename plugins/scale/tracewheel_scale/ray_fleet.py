"""Rollout workers on a Ray cluster: long Prefect tasks, one a worker, on prefect-ray's task runner."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prefect
from prefect.cache_policies import NO_CACHE

from tracewheel import (
    ConfigError,
    ConsecutiveDeaths,
    InfrastructureError,
    InputError,
    TrajectoryQueue,
    WorkerSections,
    work,
    worker_code,
)

MOST_DEATHS = 5
SILENT_SECONDS = 900.0
GRACE_SECONDS = 10.0
LOCAL_STORE_BYTES = 128 << 20


@prefect.task(name="rollout worker", persist_result=False, cache_policy=NO_CACHE, log_prints=False)
def run_rollout_worker(owner: Any, profile: dict[str, Any], worker: str, code: str) -> None:
    """Work as a rollout worker until the run has ended.

    Args:
        owner: Handle of the queue's actor.
        profile: The profile as JSON types, `threads` being this worker's own.
        worker: Its name.
        code: Hash of the driver's code.
    """
    from tracewheel_scale.ray_queue import RemoteQueue, check_code

    config = WorkerSections.model_validate(profile)
    check_code(config, code)
    work(RemoteQueue(owner, shared=config.rollout.engine.kind == "vllm_server"), config, worker)


@dataclass
class _Place:
    """One worker's place and its present task."""

    name: str
    future: Any


class RayFleet:
    """Rollout workers on a Ray cluster. Their leases are given back when their process or machine dies or stops responding.

    The driver must be a machine of the cluster: the queue's file is on its disk. Without an `address` a cluster of this
    machine alone is started.

    Args:
        config: The profile.
        queue: What the workers work off.
        logs: Not used: Ray's own logs hold what workers print.

    Raises:
        ConfigError: the address is that of a Ray client.
    """

    def __init__(self, config: WorkerSections, queue: TrajectoryQueue, logs: Path) -> None:
        workers = config.rollout.workers
        assert workers.kind == "ray"
        if workers.address and workers.address.startswith("ray://"):
            raise ConfigError(
                f"rollout.workers.address: {workers.address} is that of a Ray client; run the driver on a machine of the "
                "cluster, with address: auto or the head's host:port"
            )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._queue = queue
        self._workers = workers
        here = {name: getattr(config.policy, name) for name in ("base", "chat_template")}
        paths = {name: str(Path(path).absolute()) for name, path in here.items() if path and Path(path).exists()}
        policy = config.policy.model_copy(update=paths)
        self._config = config.model_copy(update={"threads": max(1, int(workers.cpus)), "policy": policy})
        self._runner: Any = None
        self._owner: Any = None
        self._own_cluster = False
        self._places: list[_Place] = []
        self._deaths = ConsecutiveDeaths(queue)

    def start(self) -> None:
        """As a `Fleet`."""
        from prefect_ray import RayTaskRunner

        from tracewheel_scale.ray_queue import start_owner

        self._connect()
        self._runner = RayTaskRunner()
        self._runner.__enter__()
        self._owner = start_owner(self._queue.path)
        self._places = [self._submit() for _ in range(self._workers.count)]

    def check(self) -> None:
        """As a `Fleet`."""
        import ray

        silent = self._queue.expire(SILENT_SECONDS)
        for number, place in enumerate(self._places):
            reference = place.future.wrapped_future
            if place.name in silent:
                ray.cancel(reference, force=True)
            elif not ray.wait([reference], timeout=0)[0]:
                continue
            self._queue.release(place.name)
            self._count_death(place)
            self._places[number] = self._submit()

    def stop(self) -> None:
        """As a `Fleet`."""
        self._queue.end()
        if self._runner is None:
            return
        import ray

        references = [place.future.wrapped_future for place in self._places]
        if references:
            _, left = ray.wait(references, num_returns=len(references), timeout=GRACE_SECONDS)
            for reference in left:
                ray.cancel(reference, force=True)
            ray.wait(references, num_returns=len(references), timeout=GRACE_SECONDS)
        for place in self._places:
            self._queue.release(place.name)
        if self._owner is not None:
            ray.kill(self._owner)
        self._runner.__exit__(None, None, None)
        self._runner, self._owner, self._places = None, None, []
        if self._own_cluster:
            ray.shutdown()

    def _connect(self) -> None:
        """Join the cluster, or start one of this machine alone."""
        import ray

        if ray.is_initialized():
            return
        settings: dict[str, Any] = {"namespace": "tracewheel", "log_to_driver": False, "logging_level": "ERROR"}
        if self._workers.address:
            settings["address"] = self._workers.address
        else:
            settings |= {
                "address": "local",
                "include_dashboard": False,
                "object_store_memory": LOCAL_STORE_BYTES,
                "num_cpus": max(os.cpu_count() or 1, round(self._workers.cpus * self._workers.count)),
                "_node_ip_address": "127.0.0.1",
            }
        try:
            ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InfrastructureError(f"rollout.workers.address: no Ray cluster at {self._workers.address}: {error}") from error
        self._own_cluster = True

    def _submit(self) -> _Place:
        """Submit a worker; it starts when the cluster has the processors for it, on the machine that has most of them free."""
        from prefect_ray.context import remote_options

        name = f"ray-{uuid.uuid4().hex[:12]}"
        parameters = {
            "owner": self._owner,
            "profile": self._config.model_dump(mode="json"),
            "worker": name,
            "code": worker_code(self._config),
        }
        resources = {"num_cpus": self._workers.cpus, "num_gpus": self._workers.gpus}
        # Ray restarts nothing by itself: a new worker has a new name, and the dead one's leases are given back first.
        with remote_options(**resources, max_retries=0, scheduling_strategy="SPREAD"):
            return _Place(name, self._runner.submit(run_rollout_worker, parameters))

    def _count_death(self, place: _Place) -> None:
        """Give up when workers die repeatedly without handing anything in."""
        deaths = self._deaths.add()
        error = _error_of(place.future)
        if isinstance(error, InputError):
            raise error
        if deaths >= MOST_DEATHS:
            raise InfrastructureError(
                f"rollout workers on Ray died {deaths} times without handing anything in, the last of: {error}"
            ) from error


def _error_of(future: Any) -> BaseException | None:
    """The error that a worker ended with."""
    future.wait(timeout=GRACE_SECONDS)
    state = future.state
    result = state.result(raise_on_failure=False)
    return result if isinstance(result, BaseException) else None
