"""What a fault's code means: versioned tables, one file a vendor and version, in `analyzers/health/catalogues/`.

A newer catalogue is a new file; the one of the latest version judges, and findings name it. A code that no table
holds is not guessed at: its class is `unknown`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gpuledger.errors import ConfigError

FOLDER = Path(__file__).resolve().parent / "catalogues"

CLASSES = ("user_app", "hw_fatal", "link", "driver", "info", "unknown")
"""Whose a fault is: the work's, the card's or node's, a link's, the driver's; nobody's; not known."""

CODED_KINDS = ("xid", "npu_fault")
"""Kinds of faults that carry the vendor's code."""

_RECOVERY = re.compile(r"(?:to|action)\s*[:=]?\s*(?:0x)?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a fault means. `bucket` is the vendor's own word for what to do.

    `is_sympathetic`: it follows another fault of the card and is told with it. `is_hardware`: the card's own, although
    only the work on it needs to be started anew. `tells_recovery`: it announces what the driver recommends.
    """

    fault_class: str
    action: str
    bucket: str = ""
    note: str = ""
    is_sympathetic: bool = False
    is_hardware: bool = False
    tells_recovery: bool = False
    catalogue: str = ""

    @property
    def is_of_hardware(self) -> bool:
        """Whether it counts as a failure of the node: what the work itself caused, and mere notes, do not."""
        return self.is_hardware or self.fault_class in ("hw_fatal", "link", "driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """One vendor's table of one version."""

    vendor: str
    version: str
    source: str
    meanings: Mapping[tuple[str, str], Meaning]
    recovery: Mapping[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How findings call it: "nvidia 2025-10-29"."""
        return f"{self.vendor} {self.version}"

    def meaning(self, kind: str, code: str) -> Meaning:
        """What fault `code` of `kind` means; class `unknown`, action `ask_vendor` for one that the table lacks."""
        known = self.meanings.get((kind, _code(code) if kind in CODED_KINDS else ""))
        return known or Meaning(fault_class="unknown", action="ask_vendor", catalogue=self.name)

    def recommended(self, detail: str | None) -> str | None:
        """The action that the driver announced in `detail` ("... from 0x0 to 0x2 (Node Reboot)"), if it says."""
        codes = _RECOVERY.findall(detail or "")
        return self.recovery.get(int(codes[-1])) if codes else None


def _code(code: str) -> str:
    return code.strip().upper().removeprefix("0X")


def read(path: Path) -> Catalogue:
    """The catalogue in `path`. Raises ConfigError naming the file and the entry that is wrong."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
        name = f"{table['vendor']} {table['version']}"
        meanings: dict[tuple[str, str], Meaning] = {}
        for kind in CODED_KINDS:
            for entry in table.get(kind, ()):
                for code in entry["codes"]:
                    _add(meanings, (kind, _code(str(code))), entry, name)
        for entry in table.get("kind", ()):
            _add(meanings, (entry["kind"], ""), entry, name)
        recovery = {int(entry["code"]): str(entry["action"]) for entry in table.get("recovery", ())}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path.name}: {error!r}") from error
    return Catalogue(
        vendor=table["vendor"], version=table["version"], source=table["source"], meanings=meanings, recovery=recovery
    )


def _add(
    meanings: dict[tuple[str, str], Meaning], key: tuple[str, str], entry: Mapping[str, Any], catalogue: str
) -> None:
    if key in meanings:
        raise ValueError(f"{' '.join(key)} stands in it twice")
    if entry["class"] not in CLASSES:
        raise ValueError(f"{' '.join(key)}: no class {entry['class']!r}")
    meanings[key] = Meaning(
        fault_class=entry["class"],
        action=entry["action"],
        bucket=entry.get("bucket", ""),
        note=entry.get("note", ""),
        is_sympathetic=entry.get("is_sympathetic", False),
        is_hardware=entry.get("is_hardware", False),
        tells_recovery=entry.get("tells_recovery", False),
        catalogue=catalogue,
    )


@cache
def latest() -> Mapping[str, Catalogue]:
    """The newest catalogue of each vendor. Raises ConfigError for a broken file."""
    found: dict[str, Catalogue] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        catalogue = read(path)
        older = found.get(catalogue.vendor)
        if older is None or catalogue.version > older.version:
            found[catalogue.vendor] = catalogue
    return found


def meaning(vendor: str, kind: str, code: str) -> Meaning:
    """What a vendor's fault means by its newest catalogue; class `unknown` where the vendor has none."""
    catalogue = latest().get(vendor)
    return catalogue.meaning(kind, code) if catalogue else Meaning(fault_class="unknown", action="ask_vendor")
