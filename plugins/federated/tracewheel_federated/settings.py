"""The two files that a user writes: a federation's, at the server, and a client's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from tracewheel import ConfigError, Count, Positive, RetrainConfig, Strict, content_hash, load_config
from tracewheel_federated.aggregation import Combine, Method

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]  # it names a folder
Model = TypeVar("Model", bound="FromFile")


class FromFile(Strict):
    """Settings in a YAML file; paths in it are relative to the folder where the command is typed, as in profiles."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check the file.

        Raises:
            ConfigError: it is missing, not YAML, or invalid; the message names the key.
        """
        import yaml

        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read: {error.strerror}; name the file of a federation or of a client"
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: is not YAML: {error}") from error
        return cls.checked(values, str(path))

    @classmethod
    def checked(cls, values: Any, where: str) -> Self:
        """The settings in a value from outside.

        Raises:
            ConfigError: they are invalid; the message names the key.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{where}: {key or 'the file'}: {first['msg']}") from error


class LocalConfig(Strict):
    """What a client does in a round.

    `warm_start` goes through the client's verified episodes for the `epochs` of its own profile; its rate rises over the
    `warmup_steps` in the first round alone. `reinforce` plays and updates `iterations` times, as the client's profile says.
    `proximal` is FedProx's mu: the pull of a warm start to the round's global adapter (Li et al. 2020).
    """

    work: Literal["warm_start", "reinforce"] = "warm_start"
    iterations: Count = 1
    proximal: Annotated[float, Field(ge=0.0)] = 0.0


class AggregationConfig(Strict):
    """How one adapter is made of several (`aggregation.py`, `robust.py`).

    With `combine: median` or `trimmed_mean` all clients weigh the same. `byzantine` is how many attackers `trimmed_mean` and
    `krum` bear.
    """

    method: Method = "stacked"
    weights: Literal["examples", "equal"] = "examples"
    combine: Combine = "mean"
    byzantine: Annotated[int, Field(ge=0)] = 1


class DefenceConfig(Strict):
    """When a client's update is left out, and when the client is.

    Norms are in medians of the round. An update is shrunk to `clip`, left out above `largest`, below `smallest`, or where its
    cosine with the others is negative and more than `cosine` below what theirs are among themselves. A client that is left out
    `quarantine_after` rounds running is quarantined until `tracewheel federated release`.
    """

    clip: Positive = 2.0
    largest: Positive = 3.0
    smallest: Annotated[float, Field(ge=0.0)] = 0.2
    cosine: Annotated[float, Field(ge=0.0, le=2.0)] = 0.6
    quarantine_after: Count = 2


class ParticipationConfig(Strict):
    """Who is in a round: the `share` of the connected clients, `least` of which must answer within `wait` seconds."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    least: Count = 2
    wait: Positive = 3600.0


class ServerConfig(Strict):
    """Where the server listens, and the folder of its keys, which is made if it is missing (`keys.py` says what is in it)."""

    address: str = "127.0.0.1:9443"
    keys: str


class FederationConfig(FromFile):
    """A federation.

    `profile` is what all clients share: base, LoRA, prompt, tools and environment. Its logs are not read. A new global adapter
    is promoted if, at each client, the interval of its gain on held-out tasks lies above `-margin`. Every `validate_every`
    rounds (0: never) the clients say how it does on their validation tasks.
    """

    name: Name
    profile: str
    out: str
    rounds: Count = 5
    validate_every: Annotated[int, Field(ge=0)] = 1
    local: LocalConfig = LocalConfig()
    aggregation: AggregationConfig = AggregationConfig()
    defence: DefenceConfig | None = DefenceConfig()
    participation: ParticipationConfig = ParticipationConfig()
    margin: Share = 0.1
    server: ServerConfig
    clients: tuple[str, ...] = ()

    def shared(self) -> RetrainConfig:
        return load_config(self.profile)


class PrivacyConfig(Strict):
    """Noise on what a client sends (`privacy.py`): its change is clipped to `clip`, and noise is `noise` times that."""

    clip: Positive
    noise: Positive
    delta: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-5


class ClientConfig(FromFile):
    """A client: its own profile with its own logs, and the policy that a global adapter must not be worse than.

    `champion` is an adapter's folder; without one it is the base. `keys` is the folder that the server's operator handed over.
    Without `counts` nothing but adapters is sent, and the global adapter's promotion does not wait for this client.
    """

    name: Name
    profile: str
    overrides: tuple[str, ...] = ()
    out: str
    server: str = "127.0.0.1:9443"
    keys: str
    champion: str | None = None
    privacy: PrivacyConfig | None = None
    counts: bool = True

    def own(self) -> RetrainConfig:
        return load_config(self.profile, list(self.overrides))


class Order(FromFile):
    """What the server asks of a client in a round. It says nothing of files, code or kinds: those are the client's own."""

    federation: Name
    round: Annotated[int, Field(ge=1)]
    work: Literal["train", "validate", "judge"]
    local: LocalConfig = LocalConfig()
    frozen_a: bool = False
    rounds: Count = 1
    alike: str


class Counts(Strict):
    """Successes on a client's own tasks: of the policy that it has now, of the global adapter, and of one alone."""

    tasks: Annotated[int, Field(ge=0)]
    before: Annotated[int, Field(ge=0)]
    after: Annotated[int, Field(ge=0)]
    gained: Annotated[int, Field(ge=0)]
    lost: Annotated[int, Field(ge=0)]


class Answer(FromFile):
    """What a client sends beside its adapter: numbers and digests."""

    client: Name
    alike: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
    examples: Annotated[int, Field(ge=0)] = 0
    epsilon: float | None = None
    delta: float | None = None
    counts: Counts | None = None
    refused: Literal["", "other environment", "failed"] = ""


def likeness(config: RetrainConfig) -> str:
    """The digest of what clients must have in common: base, adapter, how the policy speaks, and its environment.

    Logs, splits, rewards and budgets may differ. So may `environment.args`, where they choose tasks: the tools and the
    prompt of a conversation are what its policy has learnt.
    """
    from tracewheel import base_folder, digest_of, make_environment

    weights = base_folder(config.policy.base)
    environment = make_environment(config.environment.spec)
    return content_hash(
        {
            "base": [digest_of(file) for file in (weights / "config.json", *sorted(weights.glob("*.safetensors")))],
            "lora": config.warm_start.lora.model_dump(mode="json"),
            "tool_format": config.policy.tool_format,
            "template": config.policy.chat_template and digest_of(Path(config.policy.chat_template)),
            "environment": config.environment.kind,
            "tools": environment.tools(),
            "prompt": environment.system_prompt,
        }
    )
