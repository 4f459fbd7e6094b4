"""The network adapters of this node, InfiniBand, RoCE or Omni-Path, from the kernel's files."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path

from collector.fabric.ports import MAX_PORTS, Reader
from collector.fabric.sysfs import FILES, parse
from gpuledger.ports import Observation

SOURCE = "infiniband"
MAX_FILE_BYTES = 4096
"""The kernel gives at most one page of memory for each of these files."""


class InfinibandSource:
    """Reads this node's ports.

    Options: `node`, the node's name (default: NODE_NAME in the environment, else the host name); `root`, where the
    adapters are listed; `interval_seconds`.
    """

    def __init__(
        self,
        *,
        node: str | None = None,
        root: str | Path = "/sys/class/infiniband",
        interval_seconds: float = 15.0,
    ) -> None:
        if not isinstance(interval_seconds, int | float) or not 1 <= interval_seconds <= 86_400:
            raise ValueError("interval_seconds: must be between 1 and 86400")
        self._root = Path(root)
        self.name = SOURCE
        self.interval_seconds = float(interval_seconds)
        node = node or os.environ.get("NODE_NAME") or socket.gethostname()
        self._reader = Reader(node, SOURCE, f"{SOURCE}:{node}", self.interval_seconds)

    def read(self, now: datetime) -> Observation:
        """Read every port once. Never raises: a node without adapters is a failed read."""
        try:
            return parse(dict(_files(self._root)), now, self._reader)
        except OSError as error:
            return self._reader.failed(now, f"{self._root}: {os.strerror(error.errno or 0).lower()}")
        except Exception as error:  # the port promises an observation, whatever a driver provokes
            return self._reader.failed(now, f"{type(error).__name__} while reading")


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """The text of each known file of each port, by its path below `root`. Raises OSError when there is no such folder.

    An adapter may vanish while it is read: it is left out. A file that is there and cannot be read gives no text.
    """
    for port in islice(_ports(root), MAX_PORTS + 1):
        for name in FILES:
            path = port / name
            try:
                with path.open("rb") as file:
                    yield str(path.relative_to(root)), file.read(MAX_FILE_BYTES).decode(errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                yield str(path.relative_to(root)), ""


def _ports(root: Path) -> Iterator[Path]:
    for device in sorted(root.iterdir()):
        try:
            yield from sorted((device / "ports").iterdir(), key=lambda port: (len(port.name), port.name))
        except OSError:
            continue
