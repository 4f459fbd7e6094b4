"""Review: samples of findings for owners to judge, the precision that follows, and whether a rule may notify for it.

A new site's rules only record. For (rule, kind of workload, vendor) a rule may notify when at least 20 findings there
were judged and at least 95 % of them were right. Twenty is the smallest number at which one wrong verdict still leaves
0.95: with fewer, 0.95 could not be told from 1.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from analyzers.precision import Judged, Stratum, allocate, clopper_pearson, precision
from gpuledger.errors import BadInput
from gpuledger.presentation.findings import view
from gpuledger.presentation.texts import Texts
from warehouse.state import Drawn, Verdict

if TYPE_CHECKING:
    from gpuledger.app.service import Service

MINIMUM_PRECISION = 0.95
MINIMUM_JUDGED = 20
LARGEST_SAMPLE = 10_000
SILENT_STATUSES = ("resolved", "acknowledged", "disputed", "exempted")
"""Where a finding stands when nobody needs to be told of it."""

COLUMNS = (
    *("sample", "finding_id", "rule", "kind", "vendor", "stratum_count", "drawn_count"),
    *("tenant", "owner", "subject", "from", "to", "gpu_hours", "confidence", "what", "evidence", "would_change"),
    *("verdict", "judged_by", "note"),
)
"""Columns of a sample; the last three are for who judges."""


class Reviewing:
    """Samples, verdicts and precision of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def draw(self, size: int, seed: int, language: str) -> dict[str, Any]:
        """A sample of at most `size` stored findings that nobody has judged, by rule, kind and vendor.

        Each stratum gets 20, where it has them and `size` allows, the rest in proportion; the same seed on the same
        findings draws the same. Findings that are exempted accuse nobody, and are left out.
        """
        if not 1 <= size <= LARGEST_SAMPLE:
            raise BadInput("size", f"must be between 1 and {LARGEST_SAMPLE:,}")
        judged = self._service.state.judged_finding_ids()
        rows = {
            row["finding_id"]: row
            for row in self._service.findings()
            if row["finding_id"] not in judged and row["status"] != "exempted"
        }
        strata: dict[Stratum, list[str]] = {}
        for finding_id in sorted(rows):
            strata.setdefault(stratum_of(rows[finding_id]), []).append(finding_id)
        counts = {stratum: len(members) for stratum, members in strata.items()}
        drawn = _drawn(strata, allocate(counts, size, MINIMUM_JUDGED), seed)
        now, words = self._service.clock.now(), Texts(language)
        known = "\n".join([str(seed), *(one.finding_id for one in drawn)])
        sample = f"{now:%Y%m%dT%H%M%S}-{hashlib.sha256(known.encode()).hexdigest()[:6]}"
        self._service.state.save_sample(sample, drawn, now)
        return {
            "sample": sample,
            "finding_count": len(rows),
            "drawn_count": len(drawn),
            "strata": [
                {"rule": rule, "kind": kind, "vendor": vendor, "finding_count": counts[rule, kind, vendor]}
                for rule, kind, vendor in sorted(strata)
            ],
            "rows": [_row(sample, one, rows[one.finding_id], words) for one in drawn],
        }

    def judge(self, lines: Sequence[Mapping[str, Any]], refused: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Take verdicts in. A line that cannot be used is refused by number, field and reason; the others are kept.

        `refused` are lines that were refused before.

        Each line has `line`, `sample`, `finding_id`, `verdict` (right, wrong, cannot_tell), `judged_by` and `note`.
        One without a verdict was not judged yet, and is left out.
        """
        now, rejected, counts = self._service.clock.now(), [*map(dict, refused)], Counter[str]()
        for line in lines:
            said = {name: str(line.get(name) or "").strip() for name in Verdict.__slots__}
            said["verdict"] = said["verdict"].lower().replace(" ", "_")
            if not said["verdict"]:
                counts["unjudged"] += 1
                continue
            try:
                is_new = self._service.state.save_verdict(Verdict(**said), now)
            except BadInput as error:
                rejected.append({"line": line.get("line"), "field": error.field, "reason": error.reason})
            else:
                counts["accepted" if is_new else "known"] += 1
        return {
            **{f"{name}_count": counts[name] for name in ("accepted", "known", "unjudged")},
            "rejected_count": len(rejected),
            "rejected": rejected,
        }

    def precision(self) -> dict[str, Any]:
        """Precision with a 95 % interval: by rule, kind and vendor (`strata`), by rule, of all, and by owners.

        `strata` say whether the rule may notify there, and if not, why. `owners`: what owners confirmed and disputed
        unasked, which is no sample of what was found.
        """
        verdicts = self._service.state.verdicts_now()
        judged = _by_stratum(verdicts)
        undecided = Counter(stratum_of(row) for row in verdicts if row["verdict"] == "cannot_tell")
        present = Counter(stratum_of(row) for row in self._service.findings())
        gate = Gate(self._service)
        strata = []
        for stratum in sorted({*judged, *present, *undecided}):
            one = judged.get(stratum, Judged(stratum_count=present[stratum], right_count=0, wrong_count=0))
            reason = gate.of_stratum(stratum)
            strata.append(
                {
                    **dict(zip(("rule", "kind", "vendor"), stratum, strict=True)),
                    **_figures([one]),
                    "right_count": one.right_count,
                    "wrong_count": one.wrong_count,
                    "cannot_tell_count": undecided[stratum],
                    "finding_count": present[stratum],
                    "may_notify": not reason,
                    "silent_because": reason,
                }
            )
        rules = sorted({stratum[0] for stratum in judged})
        return {
            "notifications": self._service.settings.notifications,
            "minimum_precision": MINIMUM_PRECISION,
            "minimum_judged": MINIMUM_JUDGED,
            "strata": strata,
            "rules": [
                {"rule": rule, **_figures([one for stratum, one in judged.items() if stratum[0] == rule])}
                for rule in rules
            ],
            "overall": _figures(list(judged.values())),
            "owners": _owners(self._service.state.owner_decisions()),
        }


class Gate:
    """Whether anybody may be told of a finding now. Reads the verdicts once; make a new one for each pass."""

    def __init__(self, service: Service) -> None:
        self._mode = service.settings.notifications
        self._judged = _by_stratum(service.state.verdicts_now())

    def of_stratum(self, stratum: Stratum) -> str:
        """Why a rule may not notify for a kind and vendor; empty where it may."""
        one = self._judged.get(stratum)
        count = one.judged_count if one is not None else 0
        if one is not None and count and one.right_count < MINIMUM_PRECISION * count - 1e-9:
            return "below_precision"
        if self._mode == "all" or count >= MINIMUM_JUDGED:
            return ""
        return "too_few_judged" if count else "not_reviewed"

    def __call__(self, finding: Mapping[str, Any]) -> str:
        """Why nobody is told of `finding`; empty where somebody is.

        A critical health finding is what a driver or a device said of itself, not a verdict on somebody's work: it
        waits for no review. What has ended, or was decided, is told no more.
        """
        status = finding.get("status", "new")
        if status in SILENT_STATUSES:
            return str(status)
        if is_fault(finding):
            return ""
        return self.of_stratum(stratum_of(finding))


def is_fault(finding: Mapping[str, Any]) -> bool:
    """Whether it is an event that must be told at once: a critical health finding."""
    return finding.get("category") == "health" and finding.get("severity") == "critical"


def stratum_of(row: Mapping[str, Any]) -> Stratum:
    """Rule, kind of workload and vendor of a finding."""
    return row["analyzer"], row.get("kind") or "", row.get("vendor") or ""


def _by_stratum(verdicts: Iterable[Mapping[str, Any]]) -> dict[Stratum, Judged]:
    """Right and wrong by stratum; how many findings it has is what the last draw that was judged said."""
    right, wrong = Counter[Stratum](), Counter[Stratum]()
    sizes: dict[Stratum, int] = {}
    for row in verdicts:
        stratum = stratum_of(row)
        sizes[stratum] = row["stratum_count"]
        right[stratum] += row["verdict"] == "right"
        wrong[stratum] += row["verdict"] == "wrong"
    return {
        stratum: Judged(stratum_count=size, right_count=right[stratum], wrong_count=wrong[stratum])
        for stratum, size in sizes.items()
    }


def _figures(strata: Sequence[Judged]) -> dict[str, Any]:
    found = asdict(precision(strata))
    return {"precision": found.pop("value"), **found}


def _owners(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Confirmed and disputed by stratum, with the share confirmed and its interval, and disputes by reason."""
    confirmed, disputed = Counter[Stratum](), Counter[Stratum]()
    reasons: dict[Stratum, Counter[str]] = {}
    for row in rows:
        stratum, count = stratum_of(row), row["finding_count"]
        if row["status"] == "acknowledged":
            confirmed[stratum] += count
        else:
            disputed[stratum] += count
            reasons.setdefault(stratum, Counter())[row["reason"] or "other"] += count
    found = []
    for stratum in sorted({*confirmed, *disputed}):
        count = confirmed[stratum] + disputed[stratum]
        low, high = clopper_pearson(confirmed[stratum], count)
        found.append(
            {
                **dict(zip(("rule", "kind", "vendor"), stratum, strict=True)),
                "confirmed_count": confirmed[stratum],
                "disputed_count": disputed[stratum],
                "precision": confirmed[stratum] / count,
                "low": low,
                "high": high,
                "disputed_by_reason": dict(sorted(reasons.get(stratum, Counter()).items())),
            }
        )
    return found


def _drawn(strata: Mapping[Stratum, Sequence[str]], sizes: Mapping[Stratum, int], seed: int) -> list[Drawn]:
    draw, found = np.random.default_rng(seed), []
    for stratum in sorted(strata):
        members, size = strata[stratum], sizes[stratum]
        for place in sorted(draw.choice(len(members), size=size, replace=False)):
            rule, kind, vendor = stratum
            found.append(
                Drawn(
                    finding_id=members[place],
                    analyzer=rule,
                    kind=kind,
                    vendor=vendor,
                    stratum_count=len(members),
                    drawn_count=size,
                )
            )
    return found


def _row(sample: str, one: Drawn, row: Mapping[str, Any], words: Texts) -> dict[str, Any]:
    seen = view(row, words)
    facts = (f"{fact.metric} {fact.value} (threshold {fact.threshold})" for fact in seen.evidence)
    return {
        "sample": sample,
        "finding_id": one.finding_id,
        "rule": one.analyzer,
        "kind": one.kind,
        "vendor": one.vendor,
        "stratum_count": one.stratum_count,
        "drawn_count": one.drawn_count,
        "tenant": row["tenant"],
        "owner": row["owner"],
        "subject": seen.subject,
        "from": seen.from_at,
        "to": seen.to_at,
        "gpu_hours": max(row["gpu_hours_wasted"], row["gpu_hours_lost"], 0.0) or row["gpu_hours_observed"],
        "confidence": seen.confidence,
        "what": seen.sentence(words),
        "evidence": "; ".join(facts),
        "would_change": seen.changes,
        **dict.fromkeys(("verdict", "judged_by", "note"), ""),
    }
