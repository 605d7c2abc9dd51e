"""Typed errors, one for each boundary that a user can get wrong.

A failed rollout is data (a stop reason), never an exception. These errors are for what a person has to fix: every message
names the file, line or field, and says what to do. The command line turns `InputError` into exit code 2, `GateRefused`
into 3, `UnhealthyRun` into 4 and `NotReproduced` into 5 or 6.
"""

from typing import Any


class TracewheelError(Exception):
    """Base of all errors that Tracewheel raises on purpose."""


class Answer(TracewheelError):
    """A command's answer that is no success: a sentence, and what the command shows all the same.

    `result` is what it shows, None where only the sentence is said; `by` is who says it.
    """

    by = ""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message, result)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])


class InputError(TracewheelError):
    """Something the user gave is unusable: a config, a path, a trace file, an adapter."""


class ConfigError(InputError):
    """A configuration file or an override does not parse or is inconsistent."""


class UntrainableBase(Answer, ConfigError):
    """A base's chat template or tokenizer cannot be trained turn by turn; the message says what to use instead."""


class UnfitProfile(Answer, ConfigError):
    """A profile cannot run; the answer says what stands in the way."""

    by = "check"


class DataError(InputError):
    """A data file is missing or does not match its schema."""


class DoubtfulData(Answer, DataError):
    """The logs were read or replayed, and too little of them holds to go on with. What was written stays."""


class SecretError(DataError):
    """A secret found in the logs is still in the data about to be stored."""


class LeakError(InputError):
    """A held-out task, user or session is also on the training side."""


class AdapterMismatchError(InputError):
    """An adapter was trained for another base model than the one it should run on."""


class WeightsError(DataError):
    """A file of weights cannot be trusted, or does not fit its base.

    `file` is its path, `tensor` the tensor that is wrong, None where it is the file as a whole.
    """

    def __init__(self, why: str, file: Any, tensor: str | None = None) -> None:
        super().__init__(f"{file}: {f'{tensor}: ' if tensor else ''}{why}")
        self.file, self.tensor = str(file), tensor


class SamplerMismatchError(InputError):
    """The sampler's log-probabilities are too far from the trainer's."""


class InfrastructureError(TracewheelError):
    """A part of the infrastructure (engine, tracking server, disk) failed; the data is not at fault."""


class TimeLimitError(InfrastructureError):
    """A time limit of the profile was reached. Trying again would take as long."""


class GateRefused(Answer):
    """The gate did not promote the challenger."""

    by = "gate refused"


class UnhealthyRun(Answer):
    """The doctor found something severe."""

    by = "doctor"


class WeakGrader(Answer):
    """The audit found a verifier that is wrong too often."""

    by = "audit"


class NotReproduced(Answer):
    """A run that was made again is not the same bit by bit; `within` says whether all stages are within their tolerances."""

    def __init__(self, message: str, result: Any, *, within: bool) -> None:
        super().__init__(message, result)
        self.within = within
