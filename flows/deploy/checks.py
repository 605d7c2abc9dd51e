"""What `tracewheel deploy` checks before it starts anything. Each error names the option or setting, and what to do."""

from __future__ import annotations

import argparse
import glob
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from flows.deploy.server import choose_port
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError, DataError, InfrastructureError
from tracewheel.core.store import disk_errors
from tracewheel.policy.adapters import MODEL_FOLDER, no_base
from tracewheel.policy.gguf_base import gguf_file, is_gguf
from tracewheel.traces.discovery import find_logs

PROCESS_POOL = "process"
# A default training set has 72 tasks; most records are another attempt at a known one.
MIN_NEW = 100
SHORTEST_INTERVAL = 1
LONGEST_INTERVAL = 366 * 86400
ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """A checked deployment.

    Attributes:
        timezone: Of the cron schedule.
        port: Of the server that is started; None where the user has one.
        pool_type: Of the work pool whose workers start the runs; empty where this command serves them.
    """

    options: argparse.Namespace
    config: RetrainConfig
    timezone: str
    port: int | None
    pool_type: str = ""

    @property
    def name(self) -> str:
        """The deployment's name; the flow's is before it in Prefect."""
        return self.config.name

    @property
    def in_container(self) -> bool:
        """Whether the runs are elsewhere, in an image with files of its own."""
        return self.pool_type not in ("", PROCESS_POOL)


def checked(options: argparse.Namespace) -> Plan:
    """Check everything before anything is started.

    Raises:
        InputError: an option or a setting is wrong.
        InfrastructureError: the work folder or the server cannot be used.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    if not options.pool:  # a pool's workers have the logs and the base
        check_profile(config, empty=bool(options.on_new_traces))
    prepare_environment(config.work_dir, debug=options.debug)
    check_when(options)
    check_triggers(options, config)
    for notify in config.schedule.notify:
        notify.address()
    timezone = timezone_of(options, config)
    check_place(options)
    port = None
    if address := user_server():
        check_server(address)
    else:
        source = "--port" if options.port is not None else "schedule.port"
        wanted = options.port if options.port is not None else config.schedule.port
        port = choose_port(Path(config.work_dir), wanted, source)
    return Plan(options, config, timezone, port, check_pool(options.pool, options.image) if options.pool else "")


def check_when(options: argparse.Namespace) -> None:
    """Check the schedule.

    Raises:
        ConfigError: there is none, two, or one that never comes.
    """
    if options.cron is not None and options.interval is not None:
        raise ConfigError("--cron and --interval: give one of them")
    if options.cron is None and options.interval is None and not (options.on_new_traces or options.on_drift):
        raise ConfigError("when runs start is missing: give --cron, --interval, --on-new-traces or --on-drift")
    if options.interval is not None and not SHORTEST_INTERVAL <= options.interval <= LONGEST_INTERVAL:
        limits = f"between {SHORTEST_INTERVAL} and {LONGEST_INTERVAL} (a year), as in 86400 for each day"
        raise ConfigError(f"--interval {options.interval:g}: give seconds {limits}")
    if options.cron is not None:
        _check_cron(options.cron)


def check_triggers(options: argparse.Namespace, config: RetrainConfig) -> None:
    """Check what starts runs beside the schedule; `options.min_new` gets its default.

    Raises:
        ConfigError: a folder that no run would read, or a number that is none.
    """
    if options.min_new is not None and not options.on_new_traces:
        raise ConfigError("--min-new: it says how many records --on-new-traces waits for, which is missing")
    if options.min_new is not None and options.min_new < 1:
        raise ConfigError(f"--min-new {options.min_new}: give 1 or more")
    options.min_new = options.min_new or MIN_NEW
    if not options.on_new_traces:
        return
    folder = Path(options.on_new_traces)
    if not folder.is_dir():
        raise ConfigError(f"--on-new-traces {folder}: no such folder; make it, or name the folder that logs are written to")
    if not any(_covers(path, folder.resolve()) for path in config.ingest.paths):
        covered = ", ".join(config.ingest.paths)
        raise ConfigError(f"--on-new-traces {folder}: no run would read it; add it to ingest.paths, which has {covered}")


def _covers(path: str, folder: Path) -> bool:
    """Whether `ingest.paths` reads a folder: by a folder above it, or a pattern that begins in it, or above."""
    if glob.has_magic(path) and not Path(path).exists():
        fixed = Path(path).parts[: next(place for place, part in enumerate(Path(path).parts) if glob.has_magic(part))]
        above = Path(*fixed).resolve()
        return folder == above or ("**" in path and folder.is_relative_to(above))
    return Path(path).is_dir() and folder.is_relative_to(Path(path).resolve())


def check_place(options: argparse.Namespace) -> None:
    """Check what says where runs are started.

    Raises:
        ConfigError: an option that needs another, or a pool without a server that its workers know.
    """
    if not options.pool:
        for option, given in (("--image", options.image), ("--job-variable", options.job_variables)):
            if given:
                raise ConfigError(f"{option}: it is for the jobs of a work pool; name it with --pool")
        return
    if not user_server():
        hint = "start one with `prefect server start` and name its address, as in http://127.0.0.1:4200/api"
        raise ConfigError(
            f"--pool {options.pool}: a pool's workers need a Prefect server of their own; {hint}, in PREFECT_API_URL"
        )
    if options.port is not None:
        raise ConfigError("--port: it is of the server that this command starts, and --pool takes the one in PREFECT_API_URL")


def check_pool(name: str, image: str | None) -> str:
    """Check that the server has the pool, and that its runs have an image where they need one.

    Returns:
        The pool's type.

    Raises:
        ConfigError: it does not, or they have none.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound as error:
            known = ", ".join(found.name for found in client.read_work_pools()) or "none"
            hint = f"make it with `prefect work-pool create {name} --type process` (or docker, kubernetes)"
            raise ConfigError(f"--pool {name}: the server has no such work pool (it has {known}); {hint}") from error
    variables = pool.base_job_template.get("variables", {}).get("properties", {})
    if "image" in variables and not (image or variables["image"].get("default")):
        hint = "build one with `docker build -t tracewheel .` where this command's Dockerfile is"
        raise ConfigError(f"--image: the pool {name} is of type {pool.type}, whose runs need the image of Tracewheel; {hint}")
    if image and "image" not in variables:
        raise ConfigError(f"--image: the pool {name} is of type {pool.type}, whose runs have no image; leave it out")
    return str(pool.type)


def timezone_of(options: argparse.Namespace, config: RetrainConfig) -> str:
    """The time zone of the cron schedule.

    Raises:
        ConfigError: there is no such zone.
    """
    name: str = options.timezone or config.schedule.timezone or "UTC"
    source = "--timezone" if options.timezone else "schedule.timezone"
    if options.timezone and options.cron is None:
        raise ConfigError("--timezone: it is the time zone of --cron, which is missing")
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(f"{source} {name}: no such time zone; give an IANA name, as in Europe/Berlin") from error
    return name


def check_profile(config: RetrainConfig, *, empty: bool = False) -> None:
    """Check that a run of the profile can start: logs, environment, base, and a folder that can be written to.

    Args:
        config: The profile.
        empty: There need be no logs yet.

    Raises:
        InputError: something is missing.
        InfrastructureError: the work folder cannot be written to.
    """
    config.require_run()
    if not empty:
        find_logs(config.ingest)
    _check_base(config.policy.base)
    folder = Path(config.work_dir)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def check_server(address: str) -> None:
    """Check that a Prefect server answers.

    Raises:
        ConfigError: the address is none of a server's API.
        InfrastructureError: nobody answers.
    """
    import httpx

    hint = "unset PREFECT_API_URL for a server of this command's own"
    named = f"PREFECT_API_URL {without_password(address)}"
    try:
        reply = httpx.get(f"{address.rstrip('/')}/health", timeout=ANSWER_SECONDS)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigError(f"{named}: no address of a server; give one as in http://127.0.0.1:4200/api") from error
    except httpx.HTTPError as error:
        message = f"{named}: no Prefect server answers ({error}); start it (`prefect server start`), or {hint}"
        raise InfrastructureError(message) from error
    if reply.status_code >= 500:
        raise InfrastructureError(f"{named}: the server answers with status {reply.status_code}; look at its log, or {hint}")
    if reply.status_code == 404 or (reply.is_success and reply.text.strip() != "true"):
        raise ConfigError(f"{named}: this is no Prefect API; its address ends in /api, as in http://127.0.0.1:4200/api")


def without_password(address: str) -> str:
    """An address as it may be shown: without user, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _check_cron(cron: str) -> None:
    """Refuse what Prefect's own scheduler cannot read, or finds no date for: it would be silent for ever."""
    import asyncio

    from prefect.server.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        schedule = CronSchedule(cron=cron)
    except ValidationError as error:
        hint = 'give minute, hour, day of month, month and day of week, as in "0 3 * * *" for each night at three'
        raise ConfigError(f'--cron "{cron}": no cron schedule; {hint}') from error
    try:
        comes = asyncio.run(schedule.get_dates(1))
    except ValueError:  # no date in fifty years
        comes = []
    if not comes:
        _, _, day, month, *_ = cron.split()
        hint = f'day of month {day} is in none of the months "{month}"; mend one of the two, or give * as day of month'
        raise ConfigError(f'--cron "{cron}": never comes: {hint}')


def _check_base(base: str) -> None:
    """Check that the base is there; of a Hugging Face id, that it was downloaded, or may be."""
    if is_gguf(base):
        gguf_file(base)
        return
    folder = Path(base)
    if folder.is_dir():
        if not any(folder.glob("*.safetensors")):
            raise DataError(f"policy.base: {folder} holds no .safetensors file; give {MODEL_FOLDER}")
        return
    import httpx
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    name, _, revision = base.partition("@")
    try:
        snapshot_download(name, revision=revision or None, local_files_only=True)
    except HFValidationError as error:
        raise no_base(base, error) from error
    except LocalEntryNotFoundError:
        try:
            HfApi().model_info(name, revision=revision or None, timeout=ANSWER_SECONDS)
        except (HfHubHTTPError, OfflineModeIsEnabled, httpx.HTTPError, OSError) as error:
            raise no_base(base, error) from error


def user_server() -> str | None:
    """The address of the Prefect server that the user names; None when this command starts one."""
    return os.environ.get("PREFECT_API_URL") or None
