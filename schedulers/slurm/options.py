"""Options of the Slurm adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedulers.rest import RestOptions


class SlurmOptions(BaseModel):
    """How Slurm is asked: its commands (`squeue`, `scontrol`, ...) or slurmrestd."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    transport: Literal["command", "rest"] = Field("command", description="Ask the commands, or slurmrestd.")
    slurm_conf: Path | None = Field(None, description="Configuration of the commands; unset: their own choice.")
    commands_in: Path | None = Field(None, description="Folder of the commands; unset: the search path.")
    timeout_seconds: float = Field(60.0, gt=0, le=600, description="How long one command or answer may take.")
    url: str | None = Field(None, description="Address of slurmrestd, without a path.")
    user: str = Field("root", description="The user whose token it is.")
    token_file: Path | None = Field(None, description="File that holds a JWT (`scontrol token`); read at each request.")
    ca_file: Path | None = Field(None, description="Certificates that slurmrestd's must be signed by (PEM).")
    topology_conf: Path | None = Field(None, description="topology.conf, for slurmrestd does not tell the topology.")
    pod_names: Literal["task", "raw"] = Field(
        "task", description="How exporters label tasks of arrays: <array>_<task>, or by SLURM_JOB_ID (raw)."
    )
    summaries: bool = Field(
        default=False, description="Jobs have summaries (jobstats) in AdminComment: tell of missing ones."
    )
    history_back_days: int = Field(
        30, ge=0, le=366, description="How far back earlier attempts are looked for where Slurm does not count them."
    )

    @model_validator(mode="after")
    def _whole(self) -> SlurmOptions:
        if self.transport == "rest":
            if self.url is None or self.token_file is None:
                raise ValueError("url and token_file are needed to ask slurmrestd")
            self.rest()
        return self

    def rest(self) -> RestOptions:
        """The part that the client of slurmrestd takes."""
        return RestOptions.model_validate(
            {"url": self.url, "ca_file": self.ca_file, "timeout_seconds": self.timeout_seconds}
        )
