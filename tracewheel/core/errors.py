"""Typed errors, one for each boundary a user can get wrong.

A rollout that goes wrong is data (a stop reason), never an exception. These are for what a person
has to mend: every message names the file, line or field, and says what to do. The command line
turns `InputError` into exit code 2, `GateRefused` into 3 and `UnhealthyRun` into 4.
"""


class TracewheelError(Exception):
    """Base of all errors that Tracewheel raises on purpose."""


class InputError(TracewheelError):
    """Something the user gave is unusable: a config, a path, a trace file, an adapter."""


class ConfigError(InputError):
    """A configuration file or an override does not parse or does not hold together."""


class DataError(InputError):
    """A data file is missing, or its contents are not what its schema says."""


class SecretError(DataError):
    """A secret that was found in the logs is still in what is about to be stored."""


class LeakError(InputError):
    """A held-out task, user or session is also on the training side."""


class AdapterMismatchError(InputError):
    """An adapter was trained for another base model than the one it is asked to run on."""


class SamplerMismatchError(InputError):
    """What sampled the tokens is too far from the model that is to learn from them."""


class InfrastructureError(TracewheelError):
    """A part of the machinery (engine, tracking server, disk) failed; the data is not to blame."""


class GateRefused(TracewheelError):
    """The gate did not promote the challenger."""


class UnhealthyRun(TracewheelError):
    """The doctor found something severe. Holds a sentence, and what was found as JSON types."""

    def __str__(self) -> str:
        return str(self.args[0])
