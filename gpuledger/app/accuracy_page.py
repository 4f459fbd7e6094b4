"""docs/accuracy.md from verdicts: the same verdicts give the same page, whatever machine made them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpuledger.app.accuracy import BY_EVENT, DAYS, MISSING_RATIO, NODES, Score, Verdict

WANTED_PRECISION, WANTED_RECALL = 0.97, 0.95
GPUS_PER_NODE = 8
SMALLEST_HOURS = 0.05
"""Less is not worth a line."""
NOTHING = "none"
"""Where nothing was planted, or nothing claimed."""

HOW = """\
How right the rules are on simulated fleets whose truth the script wrote, not any rule: each fleet has {hosts} hosts \
({cards} cards) for {days} days, read every minute. Mixes: {mixes}; seeds {seeds}; {fleets} fleets, each once more \
with {missing:.0%} of its telemetry missing.

**Precision** is the part of the GPU-hours that a rule claims which was planted for that rule, **recall** the part of \
the planted GPU-hours which it claims; cards and minutes are compared, not names of jobs. Advice is compared in the \
GPU-hours that it speaks of; faults of hardware are compared event by event. Wanted: precision {precision}, recall \
{recall}. What the truth of each rule is follows the definitions in the rules' pages \
([decision 24](decisions/0024-planted-truth.md)).
"""
ABOUT_LOOK_ALIKES = """\
Honest work that looks like waste, and by how much each rule accused it. Of dips only the dips are counted as planted.
"""
ABOUT_MISSING = """\
Three quarters of what is missing went in gaps of two hours of a host's exporter, the rest in single rows. What is \
lost becomes unknown:
"""
ABOUT_CLEAN = """\
Honest work on every card, much of it look-alikes. Every rule runs; no finding is wanted.
"""
ABOUT_AUDITS = """\
GPU-hours claimed by more than one of the rules of waste and `low_activity`, or twice by one: {doubled:.2f}. Rows that \
the ledger's audits gave: {rows}. Fleets: {fleets}.
"""
NOT_MEASURED = """\
## What this does not measure

* `quota_balance` counts quota, not cards; its precision and recall are held by an acceptance test on the mixed fleet. \
On clean fleets it runs with the others.
* `lemon_node` and `flapping_node` judge weeks; what can be planted for them in three days is a host or two.
* Whether waste is waste at all: hours planted for one rule that another one claims count as wrong, although they \
were wasted.
* What a fault cost (`gpu_hours_lost`) is tested against worked examples, not here.
* Simulated counters are cleaner than real ones: the figures say that the rules do what their pages say, not what \
owners of a site will think. That is what shadow mode and `gpuledger review` are for.
"""


def page(verdicts: Sequence[Verdict]) -> str:
    """The whole page. `verdicts` are of whole fleets, of the same ones with telemetry missing, and of clean ones."""
    whole, thinned, clean = sorted_out(verdicts)
    lines = [
        "# Accuracy",
        "",
        "<!-- Written by `make accuracy`; changes here are lost. -->",
        "",
        _intro(whole),
        *_by_rule(whole, "Rules on fleets with all telemetry"),
        *_by_mix(whole),
        *_by_cause(whole),
        *_look_alikes(whole),
        *_missing(whole, thinned),
        *_clean(clean),
        *_audits(verdicts),
        *_short(whole, thinned, clean),
        NOT_MEASURED,
    ]
    return "\n".join(lines).rstrip() + "\n"


def sorted_out(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[Verdict], list[Verdict]]:
    """Those of whole fleets, of fleets with telemetry missing, and of clean ones."""
    clean = [one for one in verdicts if one.trial.mix == "clean"]
    thinned = [one for one in verdicts if one.trial.missing_ratio and one not in clean]
    return [one for one in verdicts if one not in clean and one not in thinned], thinned, clean


def merge(scores: Iterable[Score]) -> Score:
    """One score of several fleets: sums."""
    total = Score("")
    accused: dict[str, float] = defaultdict(float)
    by_cause: dict[str, tuple[float, float]] = {}
    for score in scores:
        total.rule = score.rule
        total.claimed += score.claimed
        total.correct += score.correct
        total.planted += score.planted
        total.found += score.found
        total.findings += score.findings
        total.error = total.error or score.error
        for word, hours in score.accused.items():
            accused[word] += hours
        for cause, (planted, found) in score.by_cause.items():
            before = by_cause.get(cause, (0.0, 0.0))
            by_cause[cause] = (before[0] + planted, before[1] + found)
    total.accused, total.by_cause = dict(accused), by_cause
    return total


def precision(score: Score) -> float | None:
    """The correct part of what was claimed; None where nothing was."""
    return score.correct / score.claimed if score.claimed > 0 else None


def recall(score: Score) -> float | None:
    """The found part of what was planted; None where nothing was."""
    return score.found / score.planted if score.planted > 0 else None


def _scores(verdicts: Iterable[Verdict]) -> dict[str, list[tuple[Verdict, Score]]]:
    by_rule: dict[str, list[tuple[Verdict, Score]]] = defaultdict(list)
    for verdict in verdicts:
        for score in verdict.scores:
            by_rule[score.rule].append((verdict, score))
    return by_rule


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    body = [_row(*row) for row in rows]
    return [_row(*header), _row(*("---" for _ in header)), *body, ""] if body else ["None.", ""]


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _hours(value: float) -> str:
    return f"{value:,.1f}"


def _name(verdict: Verdict) -> str:
    return f"{verdict.trial.mix} {verdict.trial.seed}"


def _worst(pairs: list[tuple[Verdict, Score]], measure: Callable[[Score], float | None]) -> str:
    known = [(value, _name(verdict)) for verdict, score in pairs if (value := measure(score)) is not None]
    return NOTHING if not known else "{:.4f} ({})".format(*min(known))


def _intro(whole: Sequence[Verdict]) -> str:
    return HOW.format(
        hosts=NODES,
        cards=NODES * GPUS_PER_NODE,
        days=DAYS,
        mixes=", ".join(sorted({one.trial.mix for one in whole})),
        seeds=", ".join(map(str, sorted({one.trial.seed for one in whole}))),
        fleets=len(whole),
        missing=MISSING_RATIO,
        precision=WANTED_PRECISION,
        recall=WANTED_RECALL,
    )


def _by_rule(verdicts: Sequence[Verdict], title: str) -> list[str]:
    rows = []
    for rule, pairs in _scores(verdicts).items():
        total = merge(score for _, score in pairs)
        if total.planted or total.claimed or total.error:
            shown = (
                (f"{total.planted:.0f} events", f"{total.claimed:.0f}")
                if rule in BY_EVENT
                else (
                    _hours(total.planted),
                    _hours(total.claimed),
                )
            )
            rows.append(
                (
                    f"`{rule}`",
                    *shown,
                    _ratio(precision(total)),
                    _ratio(recall(total)),
                    _worst(pairs, precision),
                    _worst(pairs, recall),
                )
            )
    header = ("rule", "planted", "claimed", "precision", "recall", "lowest precision", "lowest recall")
    return [f"## {title}", "", "Planted and claimed in GPU-hours.", "", *_table(header, rows)]


def _by_mix(verdicts: Sequence[Verdict]) -> list[str]:
    mixes = sorted({one.trial.mix for one in verdicts})
    rows = []
    for rule, pairs in _scores(verdicts).items():
        cells = []
        for mix in mixes:
            total = merge(score for verdict, score in pairs if verdict.trial.mix == mix)
            cells.append(f"{_ratio(precision(total))} / {_ratio(recall(total))}")
        if any(cell != f"{NOTHING} / {NOTHING}" for cell in cells):
            rows.append((f"`{rule}`", *cells))
    return ["### By mix", "", "Precision / recall over all seeds.", "", *_table(("rule", *mixes), rows)]


def _by_cause(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        (f"`{rule}`", cause.replace("_", " "), _hours(planted), _ratio(found / planted))
        for rule, pairs in _scores(verdicts).items()
        for cause, (planted, found) in sorted(merge(score for _, score in pairs).by_cause.items())
        if planted
    ]
    return ["### By what was planted", "", *_table(("rule", "planted", "GPU-hours or events", "recall"), rows)]


def _look_alikes(verdicts: Sequence[Verdict]) -> list[str]:
    planted: dict[str, float] = defaultdict(float)
    for verdict in verdicts:
        for cause, hours in verdict.lookalike_hours.items():
            planted[cause] += hours
    accused: dict[str, dict[str, float]] = defaultdict(dict)
    for rule, pairs in _scores(verdicts).items():
        for word, hours in merge(score for _, score in pairs).accused.items():
            accused[word][rule] = hours
    rows = [(cause.replace("_", " "), _hours(hours), _list(accused.get(cause, {}))) for cause, hours in planted.items()]
    others = {word: rules for word, rules in accused.items() if word not in planted}
    rest = [(word.replace("_", " "), _list(rules)) for word, rules in sorted(others.items()) if _list(rules) != "none"]
    return [
        "### Look-alikes",
        "",
        ABOUT_LOOK_ALIKES,
        *_table(("look-alike", "GPU-hours planted", "accused, GPU-hours"), sorted(rows)),
        "Claimed where something else was:",
        "",
        *_table(("what was there", "claimed by, GPU-hours"), rest),
    ]


def _list(by_rule: dict[str, float]) -> str:
    named = sorted(by_rule.items(), key=lambda item: -item[1])
    return ", ".join(f"`{rule}` {hours:.1f}" for rule, hours in named if hours >= SMALLEST_HOURS) or "none"


def _missing(whole: Sequence[Verdict], thinned: Sequence[Verdict]) -> list[str]:
    before, after = _states(whole), _states(thinned)
    rows = [
        (f"`{state}`", _hours(before.get(state, 0.0)), _hours(after.get(state, 0.0)), f"{change:+,.1f}")
        for state in sorted({*before, *after})
        if abs(change := after.get(state, 0.0) - before.get(state, 0.0)) >= SMALLEST_HOURS
    ]
    return [
        *_by_rule(thinned, f"The same fleets with {MISSING_RATIO:.0%} of telemetry missing"),
        ABOUT_MISSING,
        *_table(("state", "with all telemetry", "with what is left", "change"), rows),
    ]


def _states(verdicts: Sequence[Verdict]) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for verdict in verdicts:
        for state, value in verdict.state_hours.items():
            hours[state] += value
    return hours


def _clean(verdicts: Sequence[Verdict]) -> list[str]:
    rows = []
    for verdict in verdicts:
        found = {score.rule: score for score in verdict.scores if score.findings}
        told = ", ".join(f"`{rule}` {score.findings} ({score.claimed:.1f} GPU-hours)" for rule, score in found.items())
        look_alikes = sum(verdict.lookalike_hours.values())
        rows.append((verdict.trial.seed, _hours(look_alikes), sum(s.findings for s in found.values()), told or "none"))
    return [
        "## Clean fleets",
        "",
        ABOUT_CLEAN,
        *_table(("seed", "GPU-hours of look-alikes", "findings", "by rule"), rows),
    ]


def _audits(verdicts: Sequence[Verdict]) -> list[str]:
    doubled = sum(one.double_claimed_hours for one in verdicts)
    rows = sum(one.audit_rows for one in verdicts)
    return ["## Audits", "", ABOUT_AUDITS.format(doubled=doubled, rows=rows, fleets=len(verdicts))]


def shortfalls(whole: Sequence[Verdict], thinned: Sequence[Verdict], clean: Sequence[Verdict]) -> Iterator[str]:
    """What is below what is wanted, one sentence each."""
    for title, verdicts in (("", whole), ("With telemetry missing: ", thinned)):
        for rule, pairs in _scores(verdicts).items():
            for mix in sorted({verdict.trial.mix for verdict, _ in pairs}):
                total = merge(score for verdict, score in pairs if verdict.trial.mix == mix)
                for what in (*_wrong(total), *(() if title else _missed(total))):
                    yield f"{title}`{rule}` on {mix}: {what}."
    for verdict in clean:
        if count := sum(score.findings for score in verdict.scores):
            yield f"The clean fleet of seed {verdict.trial.seed} has {count} findings."


def _wrong(total: Score) -> Iterator[str]:
    if total.error:
        yield total.error.splitlines()[0]
    if (right := precision(total)) is not None and right < WANTED_PRECISION:
        most = sorted(total.accused.items(), key=lambda item: -item[1])[:3]
        said = ", ".join(f"{word.replace('_', ' ')} {hours:.1f}" for word, hours in most)
        yield f"precision {right:.4f}; claimed wrongly: {said}"


def _missed(total: Score) -> Iterator[str]:
    if (seen := recall(total)) is not None and seen < WANTED_RECALL:
        missed = {cause: planted - found for cause, (planted, found) in total.by_cause.items()}
        said = ", ".join(f"{cause.replace('_', ' ')} {hours:.1f}" for cause, hours in missed.items() if hours > 0.1)
        yield f"recall {seen:.4f}; missed: {said}"


def _short(whole: Sequence[Verdict], thinned: Sequence[Verdict], clean: Sequence[Verdict]) -> list[str]:
    lines = [f"* {line}" for line in shortfalls(whole, thinned, clean)]
    return ["## What falls short", "", *(lines or ["Nothing of what is wanted."]), ""]
