"""Slurm's texts of resources: TRES ("cpu=4,gres/gpu=2") and GRES ("gpu:h100:2(IDX:0-1)"); GPUs are counted once.

A TRES text lists GPUs by type and in all beside each other (`gres/gpu:a100=4,gres/gpu=4`): they are the same cards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuledger.errors import BadInput
from gpuledger.model import canonical_model, slice_share

GPU = "gres/gpu"
CUT = "…"
"""Stands at the end of a text that a command cut to its column."""

_NOTHING = frozenset({"", "N/A", "(null)", "None", "n/a"})
_FACTORS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[Bnc]?", re.IGNORECASE)
_GRES = re.compile(r"(?:^|,)\s*(?:gres[:/])?(gpu|shard|mps)((?:[:=][^:=,()]+)*)(?:\(([^)]*)\))?(?=,|\s*$)")
_PROFILE = re.compile(r"(.*?)[_-]?(\d+g\.\d+gb(?:[+.][a-z.]+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gres:
    """So many of one generic resource; `kind` is gpu, shard or mps, `indexes` those of its cards that are meant."""

    kind: str
    type: str
    count: float
    indexes: tuple[int, ...] = ()


def tres(text: str | None) -> dict[str, float]:
    """Amounts by name as in the text; memory in MiB. Raises BadInput for an entry without an amount (a cut text)."""
    given = (text or "").strip()
    if given in _NOTHING:
        return {}
    found = {}
    for entry in given.split(","):
        name, separator, amount = entry.strip().partition("=")
        match = _AMOUNT.fullmatch(amount)
        if not separator or match is None:
            raise BadInput("TRES", f"{given!r} ends or breaks at {entry!r}")
        number = float(match[1]) * _FACTORS[match[2].upper()]
        found[name] = number / (_FACTORS["M"] if match[2] else 1) if name == "mem" else number
    return found


def gpus(amounts: Mapping[str, float]) -> float:
    """How many GPUs these amounts are: the generic entry where there is one, else those by type together."""
    if GPU in amounts:
        return amounts[GPU]
    return sum(amount for name, amount in amounts.items() if name.startswith(f"{GPU}:"))


def held_gpus(text: str | None) -> float:
    """The GPUs of the text of an allocation. Raises BadInput where it says nothing at all, or was cut."""
    amounts = tres(text)
    if not amounts:
        raise BadInput("TRES", "an allocation without resources")
    return gpus(amounts)


def gres(text: str | None) -> list[Gres]:
    """The GPUs, shards and MPS parts in a text of GRES; other resources are left out. A bare "gpu" is one."""
    return [_one(match) for match in _GRES.finditer("" if (text or "") in _NOTHING else text or "")]


def _one(match: re.Match[str]) -> Gres:
    parts = [part for part in re.split(r"[:=]", match[2]) if part]
    amount = _AMOUNT.fullmatch(parts[-1]) if parts else None
    count = float(amount[1]) * _FACTORS[amount[2].upper()] if amount else 1.0
    names = parts[:-1] if amount else parts
    inside = match[3] or ""
    indexes = numbers(inside.removeprefix("IDX:")) if inside.startswith("IDX:") and "N/A" not in inside else ()
    return Gres(match[1], ":".join(names), count, tuple(indexes))


def gpu_count(found: Iterable[Gres]) -> float:
    """How many of them are GPUs (cards or MIG slices); a shard is a part of one of them."""
    return sum(one.count for one in found if one.kind == "gpu")


def numbers(text: str) -> list[int]:
    """The numbers in "0-2,5,8-12:2". Raises BadInput for anything else."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?(?::(\d+))?\s*", part)
        if match is None or int(match[2] or match[1]) - int(match[1]) > 10_000_000:
            raise BadInput("range", f"{text!r} is no list of numbers")
        found += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1)
    return found


def is_slice(kind: str) -> bool:
    """Whether this type of GPU is a MIG profile ("1g.10gb", "a100_3g.20gb")."""
    return _PROFILE.fullmatch(kind) is not None


def share_of(kind: str) -> float | None:
    """The part of a card that one GPU of this type is: 1 of a whole one, None where a slice's model is not known."""
    match = _PROFILE.fullmatch(kind)
    return 1.0 if match is None else slice_share(canonical_model(match[1].replace("_", " ")), match[2])
