"""Who is told how an unattended run has ended."""

from __future__ import annotations

import os
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from tracewheel.config.base import Positive, Strict
from tracewheel.core.errors import ConfigError

Happening = Literal["failed", "crashed", "stopped", "refused", "held", "awaiting", "promoted", "skipped"]
HELD_EVENT = "tracewheel.batch.held"
WHAT_NEEDS_A_PERSON: tuple[Happening, ...] = ("failed", "crashed", "held", "awaiting")


def _address(url: SecretStr) -> SecretStr:
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("give an address as in https://host/path")
    return url


class NotifyConfig(Strict):
    """A webhook that Prefect calls: `url`, or the environment variable `url_env` that holds it. An address is kept secret.

    `on` names the ends of a run that are told; the default is what needs a person. `overdue_days` tells when no run was
    complete for so many days.
    """

    url: Annotated[SecretStr, AfterValidator(_address)] | None = None
    url_env: str | None = None
    on: tuple[Happening, ...] = WHAT_NEEDS_A_PERSON
    overdue_days: Annotated[Positive, Field(le=366)] | None = None

    @model_validator(mode="after")
    def _check(self) -> NotifyConfig:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("give either url or url_env, the environment variable that holds it")
        if not self.on and self.overdue_days is None:
            raise ValueError("tells nothing: name ends in on, or set overdue_days")
        return self

    def address(self) -> str:
        """The address; a secret.

        Raises:
            ConfigError: the environment variable is not set, or holds no address.
        """
        if self.url is not None:
            return self.url.get_secret_value()
        assert self.url_env is not None
        try:
            return _address(SecretStr(os.environ[self.url_env])).get_secret_value()
        except KeyError as error:
            raise ConfigError(f"schedule.notify.url_env: the environment variable {self.url_env} is not set") from error
        except ValueError as error:
            raise ConfigError(f"schedule.notify.url_env: {self.url_env} holds no address: {error}") from error
