"""A pod's labels under any of their spellings.

Kubernetes says `training.kubeflow.org/job-name`; kube-state-metrics says `label_training_kubeflow_org_job_name`, takes
capitals apart (`jobName` becomes `job_name`), and where two labels become one name calls them `..._conflict1`,
`..._conflict2`. All of these are one label here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_CAPITAL = re.compile(r"([a-z0-9])([A-Z])")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_CONFLICT = re.compile(r"_conflict\d+$")


@lru_cache(maxsize=16_384)
def normal(name: str) -> str:
    """The one spelling of a label's name."""
    plain = _CONFLICT.sub("", name.removeprefix("label_"))
    return _CAPITAL.sub(r"\1_\2", _ILLEGAL.sub("_", plain)).lower()


class Labels:
    """Labels by their normal name. Empty values are labels that are not set."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: dict[str, list[str]] = {}
        for name in sorted(given):
            if value := given[name].strip():
                self._values.setdefault(normal(name), []).append(value)

    def all(self, name: str) -> list[str]:
        """Every value of `name`: more than one only where kube-state-metrics could not tell two labels apart."""
        return self._values.get(normal(name), [])

    def get(self, *names: str) -> str | None:
        """The first value of the first of `names` that is set; a plain name comes before its `_conflictN`."""
        for name in names:
            if values := self.all(name):
                return values[0]
        return None
