"""Settings: defaults here, then the configuration file (TOML), then GPULEDGER_* variables, then the command line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from gpuledger.errors import ConfigError

SettingsType = TypeVar("SettingsType", bound=BaseSettings)

PREFIX = "GPULEDGER_"
COLLECTOR_PREFIX = "GPULEDGER_COLLECTOR_"
"""How the agent's variables begin; the service leaves them to it."""

OPTION_VARIABLES = frozenset({"GPULEDGER_PROMETHEUS_TOKEN", "GPULEDGER_PROMETHEUS_USER"})
"""Variables of single options of the command line, which are no settings."""
COMMAND_VARIABLES = frozenset({"GPULEDGER_PROMETHEUS_TOKEN", "GPULEDGER_PROMETHEUS_USER"})
"""Credentials that one command takes from the environment; they are no settings."""


class FileSettings(BaseSettings):
    """Settings that come from a TOML file, from the environment over it, and from arguments over both."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line over environment over file over defaults."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


class Settings(FileSettings):
    """Everything that an operator may set, with its default and its unit in its name."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    warehouse: Path = Field(Path("var/gpuledger.duckdb"), description="the warehouse file (DuckDB)")
    state_url: str | None = Field(
        None, description="SQLAlchemy URL of the state store; default: SQLite beside the warehouse"
    )
    token: SecretStr | None = Field(None, description="bearer token that every call must carry; none: loopback only")
    listen: str = Field("127.0.0.1:8420", description="HOST:PORT of the service")
    service_url: str = Field("http://127.0.0.1:8420", description="where collectors and dashboards find the service")
    timezone: str = Field("UTC", description="IANA zone in which days and weeks are cut and times are shown")
    memory_limit_mib: int = Field(4096, ge=256, description="DuckDB's memory limit, MiB")
    max_body_bytes: int = Field(
        64 * 2**20, ge=2**10, description="largest request body, and largest decoded batch, bytes"
    )
    max_text_bytes: int = Field(4096, ge=64, description="longest text value in a record, bytes of UTF-8")
    future_tolerance_seconds: float = Field(600, ge=0, description="how far ahead of the service's clock a time may be")
    oldest_accepted_days: float = Field(3650, gt=0, description="how old a reading may be")
    remote_write_decoded_bytes: int = Field(
        32 * 2**20, ge=2**10, le=2**30, description="what a remote-write request may unpack to, bytes"
    )
    remote_write_series_per_target: int = Field(
        50_000, ge=1, description="series that one scrape target may write; new ones beyond are refused"
    )
    remote_write_waiting: int = Field(
        64, ge=1, description="remote-write requests that may wait; senders of more are told to come again"
    )
    assemble_every_seconds: float = Field(5, gt=0, description="how often remote-write samples become readings")
    sample_keep_minutes: float = Field(
        60, ge=1, description="how long remote-write samples wait for late ones of the same reading"
    )
    lateness_minutes: float = Field(60, ge=0, description="how long an hour stays provisional after its end")
    ledger_every_seconds: float = Field(60, gt=0, description="how often open hours are rebuilt")
    settle_seconds: float = Field(
        90, ge=0, description="how far behind the clock the ledger is kept, for late readings"
    )
    faults_every_seconds: float = Field(15, gt=0, description="how often faults are looked for in what was committed")
    rules_every_seconds: float = Field(900, gt=0, description="how often rules run")
    rules_window_days: float = Field(28, gt=0, description="how far back rules look")
    report_directory: Path = Field(Path("var/reports"), description="where scheduled reports are written")
    alert_webhook_url: SecretStr | None = Field(
        None, description="generic JSON webhook for alerts; its address is a credential"
    )
    alert_webhook_secret: SecretStr | None = Field(None, description="HMAC-SHA256 key of the webhook")
    alert_minimum_gpu_hours: float = Field(
        8, ge=0, description="smallest finding that raises an alert, GPU-hours wasted"
    )
    notifications: Literal["reviewed", "all"] = Field(
        "reviewed",
        description="who is told: `reviewed`: only where a rule's findings were judged right at a sample of them;"
        " `all`: everywhere but where they were judged wrong",
    )
    heartbeat_url: SecretStr | None = Field(
        None, description="webhook that gets a signed heartbeat; its absence is the alarm"
    )
    heartbeat_every_seconds: float = Field(60, gt=0, description="interval of the heartbeat")
    attribution_rules: Path | None = Field(
        None, description="TOML file that says whose a pod is, for what is written to the service or back-filled"
    )
    policy_file: Path | None = Field(
        None, description="TOML file of the site's policy: thresholds of rules for some work, and exemptions"
    )
    scheduler: str = Field("fake", description="scheduler adapter for plans")
    schedulers_file: Path | None = Field(
        None, description="TOML file of [[scheduler]] tables: the schedulers that the service reads"
    )

    @field_validator("token")
    @classmethod
    def _token_says_something(cls, token: SecretStr | None) -> SecretStr | None:
        """An empty variable is a slip, not a decision to let everybody in."""
        if token is not None and not token.get_secret_value().strip():
            raise ValueError("is empty: set a token, or leave the setting out")
        return token

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, timezone: str) -> str:
        try:
            return ZoneInfo(timezone).key
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{timezone!r} is not an IANA time zone") from None

    @property
    def effective_state_url(self) -> str:
        """The state store's URL, with the default filled in."""
        return self.state_url or f"sqlite:///{self.warehouse.with_suffix('.state.sqlite')}"


def _known(model: type[BaseModel], path: list[str]) -> bool:
    """Whether `path` leads to a field of `model`, or of a model inside it."""
    field = model.model_fields.get(path[0].lower())
    if field is None or len(path) == 1:
        return field is not None
    inner = field.annotation
    return isinstance(inner, type) and issubclass(inner, BaseModel) and _known(inner, path[1:])


def check_environment(kind: type[BaseSettings], environment: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable that begins like one of `kind` and is none: a slip would go unseen."""
    prefix = str(kind.model_config.get("env_prefix"))
    for name in sorted(environment):
        is_ours = name.upper().startswith(prefix) and name.upper() not in COMMAND_VARIABLES
        if not is_ours or (prefix != COLLECTOR_PREFIX and name.upper().startswith(COLLECTOR_PREFIX)):
            continue
        if not _known(kind, name[len(prefix) :].split("__")):
            names = [f"{prefix}{field.upper()}" for field in kind.model_fields]
            close = difflib.get_close_matches(name.upper(), names, 1)
            raise ConfigError(f"{name}: no such setting" + (f"; did you mean {close[0]}?" if close else ""))


def load_from(kind: type[SettingsType], config: Path | None, overrides: Mapping[str, Any]) -> SettingsType:
    """Settings of `kind` from `config` (TOML), the environment and `overrides` (None values are "not given").

    Raises ConfigError naming the file, the variable or the setting that is wrong.
    """
    check_environment(kind, os.environ)
    if config is not None and not config.is_file():
        raise ConfigError(f"--config: no file {config}")
    given = {name: value for name, value in overrides.items() if value is not None}
    from_file = type(kind.__name__, (kind,), {"model_config": SettingsConfigDict(toml_file=config)})
    try:
        return cast("SettingsType", from_file(**given))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise ConfigError(f"{config}: {error}") from error


def load(config: Path | None = None, **overrides: Any) -> Settings:
    """The service's settings; `load_from` says from where."""
    return load_from(Settings, config, overrides)
