"""The names of this node's pods, from the folders in which the kubelet keeps their logs.

It makes one for each pod, `NAMESPACE_NAME_UID`; neither a namespace nor a pod's name can hold an underscore. Reading
their names needs no access to any API, and no rights but to list one folder.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = re.compile(r"([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})_([0-9a-f-]{32,36})", re.ASCII)


def parse_folder(name: str) -> tuple[str, str, str] | None:
    """(uid, namespace, pod) that a folder stands for; None for any other."""
    found = _FOLDER.fullmatch(name)
    return (found[3], found[1], found[2]) if found else None


class PodFolders:
    """Names pods by uid. The folder is listed anew when one is asked for that is not known, once for each `renew`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[str, tuple[str, str]] = {}
        self._is_fresh = False

    def renew(self) -> None:
        """A new pass begins: a pod that was not there may be there now."""
        self._is_fresh = False

    def name(self, uid: str) -> tuple[str, str] | None:
        """(namespace, name) of the pod; None where no folder says it."""
        if uid not in self._names and not self._is_fresh:
            self._is_fresh = True
            self._names = self._listed()
        return self._names.get(uid)

    def _listed(self) -> dict[str, tuple[str, str]]:
        try:
            folders = [parse_folder(folder.name) for folder in self._directory.iterdir()]
        except OSError:
            return {}
        return {found[0]: (found[1], found[2]) for found in folders if found}
