"""What one line of a training log tells. Pure: no time of reading, no file.

Forms: Megatron-LM's `training_log` (megatron/training/training.py; also Megatron-DeepSpeed's and Primus' variants),
veRL's console logger (verl/utils/tracking.py), DeepSpeed's `steps_per_print` lines (deepspeed/runtime/engine.py),
TorchTitan's metrics line (torchtitan/components/metrics.py), and a pattern of the operator's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

FORMATS = ("auto", "megatron", "verl", "deepspeed", "torchtitan", "pattern")
MAX_LINE_CHARACTERS = 65_536
TERA = 1e12


class Kind(StrEnum):
    """What a line is about."""

    STEP = "step"
    CHECKPOINT = "checkpoint"
    """A checkpoint is complete."""
    SAVING = "saving"
    """A checkpoint begins, and training stands still for it."""
    SAVING_ASIDE = "saving_aside"
    """A checkpoint begins, and training goes on."""
    EVALUATION = "evaluation"
    """An evaluation is over."""
    LOADING = "loading"
    """The work is being set up."""
    BEGINS = "begins"
    """The first step begins."""
    WORLD = "world"
    """How many GPUs there are."""


@dataclass(slots=True, kw_only=True)
class Told:
    """One line. `stamp` is its own time as printed; `seconds` the wall time of one step.

    `tokens` are the whole job's in one step, `samples` its global batch. `phases` are the seconds of the parts of a
    step. `is_interval` says that the form prints one line for many steps: numbers between two lines were steps too.
    """

    kind: Kind
    step: int | None = None
    stamp: str | None = None
    rank: int | None = None
    gpus: int | None = None
    seconds: float | None = None
    tokens: float | None = None
    tokens_per_gpu_second: float | None = None
    tokens_per_second: float | None = None
    samples: float | None = None
    samples_per_second: float | None = None
    flops_per_gpu_second: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    is_interval: bool = True
    refused: int = 0

    def fill(self, later: Told) -> None:
        """Take from another line about the same step what this one does not tell."""
        for name in _MEASURES:
            if getattr(self, name) is None:
                setattr(self, name, getattr(later, name))
        self.phases = {**later.phases, **self.phases}
        self.refused += later.refused


_MEASURES = (
    *("stamp", "rank", "gpus", "seconds", "tokens", "tokens_per_gpu_second", "tokens_per_second"),
    *("samples", "samples_per_second", "flops_per_gpu_second"),
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WORKER = re.compile(r"^\s*\(\w[^()]{0,120}\bpid=\d+[^()]{0,120}\)\s?")
STAMP = re.compile(
    r"(?<!\d)(\d{4})[-/]?(\d\d)[-/]?(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\w*"
_RANK = re.compile(r"\[rank-?\s?(\d{1,7})(?:/(\d{1,7}))?\]|\[Rank (\d{1,7})\]", re.IGNORECASE)
_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*\d{1,15}\s*\|")
_VERL = re.compile(r"(?:^|\s)step:(\d{1,15})\s+-\s")
_VERL_PAIR = re.compile(rf"(?<![\w./@-])([\w./@-]+):(?:np\.\w+\()?({_NUMBER})\)?(?=\s|$)", re.IGNORECASE)
_VERL_MORE = re.compile(r"^\s*(?:-\s*)?(?:perf|timing_s)/[\w./-]+:")
_DEEPSPEED = re.compile(r"\b(?:global_step=|step=|steps: )(\d{1,15})\b")
_DEEPSPEED_RATE = re.compile(rf"\b(?:CurrSamplesPerSec=|samples/sec: )({_NUMBER})")
_DEEPSPEED_SECONDS = re.compile(rf"\biter time \(s\): ({_NUMBER})")
_TITAN = re.compile(r"\bstep:\s*(\d{1,15})\s+loss:\s")
_TITAN_PAIR = re.compile(rf"\b(tps|tflops):\s*({_NUMBER})")
_MARKS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.CHECKPOINT, re.compile(r"successfully saved checkpoint\b.{0,300}?\biteration\s+(?P<step>\d{1,15})")),
    (Kind.SAVING_ASIDE, re.compile(r"scheduled an async checkpoint save at iteration\s+(?P<step>\d{1,15})")),
    (Kind.SAVING, re.compile(r"saving checkpoint at iteration\s+(?P<step>\d{1,15})")),
    (Kind.CHECKPOINT, re.compile(r"\[Torch\] Checkpoint global_step(?P<step>\d{1,15}) is ready now")),
    (Kind.EVALUATION, re.compile(r"validation loss at iteration\s+(?P<step>\d{1,15})")),
    (Kind.BEGINS, re.compile(r"\[before the start of training step\] datetime:")),
    (Kind.LOADING, re.compile(r"\[after [^\]]{1,120}\] datetime:")),
    (Kind.WORLD, re.compile(r"using world size: (?P<gpus>\d{1,7})\b")),
)
_MEGATRON_SECONDS = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0}
_MEGATRON_FLOPS = ("throughput per GPU (TFLOP/s/GPU)", "TFLOPs")
_MEGATRON_TOKENS = ("tokens per GPU (tokens/s/GPU)", "tokens per gpu per second (tgs)")
_VERL_PHASES = {
    "timing_s/gen": "rollout",
    "timing_s/update_actor": "update_actor",
    "timing_s/update_critic": "update_critic",
    "timing_s/testing": "evaluation",
    "timing_s/save_checkpoint": "checkpoint",
}
_INTERESTING = re.compile(
    rb"iteration|step|tps:|checkpoint|validation|datetime:|world size|perf/|timing_s/", re.IGNORECASE
)


def number(text: str) -> float | None:
    """A measurement: finite and not negative; of a pair of instant and mean the first. None for anything else."""
    try:
        value = float(text.split("/", 1)[0].strip().replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1e18 else None


class LineReader:
    """Reads lines of one form, or of whichever it is (`auto`).

    `pattern` is a regular expression with named groups: `step`, and any of `time`, `rank`, `gpus`, `step_seconds`,
    `step_ms`, `tokens`, `tokens_per_second`, `tokens_per_gpu_second`, `samples`, `samples_per_second`,
    `tflops_per_gpu`. `checkpoint_pattern` and `evaluation_pattern` may name `step` and `time`. Raises ValueError for
    one that cannot be used.
    """

    def __init__(
        self, form: str = "auto", *, pattern: str = "", checkpoint_pattern: str = "", evaluation_pattern: str = ""
    ) -> None:
        if form not in FORMATS:
            raise ValueError(f"format: must be one of {', '.join(FORMATS)}")
        if (form == "pattern") != bool(pattern):
            raise ValueError('pattern: goes with format = "pattern", and that with it')
        self._form = form
        self._pattern = _compiled("pattern", pattern, {"step"})
        marks = (
            (Kind.CHECKPOINT, _compiled("checkpoint_pattern", checkpoint_pattern, set())),
            (Kind.EVALUATION, _compiled("evaluation_pattern", evaluation_pattern, set())),
        )
        self._marks = tuple((kind, own) for kind, own in marks if own is not None)
        self._takes_all = bool(self._marks) or self._pattern is not None
        self._step: int | None = None

    def read(self, lines: list[bytes]) -> Iterator[Told]:
        """What `lines` tell, in their order."""
        self._step = None
        for raw in lines:
            if not self._takes_all and not _INTERESTING.search(raw):
                continue
            line = _ANSI.sub("", raw[:MAX_LINE_CHARACTERS].decode("utf-8", "replace"))
            told = self.line(line)
            if told is not None:
                yield told

    def line(self, line: str) -> Told | None:
        """What `line` tells, if anything."""
        told = self._own(line) if self._takes_all else None
        if told is None and self._form in ("auto", "megatron"):
            told = _megatron(line)
        if told is None and self._form in ("auto", "verl"):
            told = self._verl(line)
        if told is None and self._form in ("auto", "torchtitan"):
            told = _titan(line)
        if told is None and self._form in ("auto", "deepspeed"):
            told = _deepspeed(line)
        if told is None:
            told = _mark(line, _MARKS)
        if told is not None and (found := _RANK.search(line[:300])):
            told.rank = int(found[1] or found[3]) if told.rank is None else told.rank
            told.gpus = int(found[2]) if found[2] and told.gpus is None else told.gpus
        return told

    def _own(self, line: str) -> Told | None:
        found = self._pattern.search(line) if self._pattern else None
        if found is None or not (step := _whole(found["step"])):
            return _mark(line, self._marks)
        of = {name: text for name, text in found.groupdict().items() if text is not None}
        values = {name: number(text) for name, text in of.items() if name in _OWN}
        told = Told(kind=Kind.STEP, step=int(step), stamp=of.get("time") or _stamp(line))
        told.refused = sum(value is None for value in values.values())
        for name, (column, factor) in _OWN.items():
            if (value := values.get(name)) is not None:
                setattr(told, column, value * factor)
        for name in ("rank", "gpus"):
            setattr(told, name, int(text) if (text := _whole(of.get(name, ""))) else None)
        return told

    def _verl(self, line: str) -> Told | None:
        text = _WORKER.sub("", line)
        found = _VERL.search(text)
        if found is not None:
            self._step = int(found[1])
        elif self._step is None or not _VERL_MORE.match(text):
            return None
        pairs = {name: number(value) for name, value in _VERL_PAIR.findall(text)}
        seconds = pairs.get("perf/time_per_step") or pairs.get("timing_s/step")
        phases = {phase: pairs.get(name) for name, phase in _VERL_PHASES.items()}
        used = ("perf/time_per_step", "timing_s/step", "perf/total_num_tokens", "perf/throughput", *_VERL_PHASES)
        return Told(
            kind=Kind.STEP,
            step=self._step,
            stamp=_stamp(text[: found.start()]) if found else None,
            seconds=seconds or None,
            tokens=pairs.get("perf/total_num_tokens"),
            tokens_per_gpu_second=pairs.get("perf/throughput"),
            phases={phase: spent for phase, spent in phases.items() if spent},
            is_interval=False,
            refused=sum(name in pairs and pairs[name] is None for name in used),
        )


_OWN = {
    "step_seconds": ("seconds", 1.0),
    "step_ms": ("seconds", 1e-3),
    "tokens": ("tokens", 1.0),
    "tokens_per_second": ("tokens_per_second", 1.0),
    "tokens_per_gpu_second": ("tokens_per_gpu_second", 1.0),
    "samples": ("samples", 1.0),
    "samples_per_second": ("samples_per_second", 1.0),
    "tflops_per_gpu": ("flops_per_gpu_second", TERA),
}
_NAMES = {"step", "time", "rank", "gpus", *_OWN}


def _compiled(name: str, text: str, needed: set[str]) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"{name}: {error}") from error
    groups = set(pattern.groupindex)
    if not needed <= groups or not groups <= _NAMES:
        wrong = sorted((needed - groups) or (groups - _NAMES))
        raise ValueError(f"{name}: needs the group `step`, and knows {', '.join(sorted(_NAMES))}; see {wrong}")
    return pattern


def _whole(text: str) -> str:
    """`text` where it is a count of at most 15 digits, else empty."""
    return text if text.isascii() and text.isdigit() and len(text) <= 15 else ""


def _stamp(text: str) -> str | None:
    found = STAMP.search(text[:400])
    return found[0] if found else None


def _megatron(line: str) -> Told | None:
    found = _ITERATION.search(line)
    if found is None:
        return None
    told = Told(kind=Kind.STEP, step=int(found[1]), stamp=_stamp(line[: found.start()]))
    for part in line[found.end() :].split("|"):
        name, _, text = part.strip().partition(":")
        if name in _MEGATRON_SECONDS:
            value = number(text)
            told.seconds = None if value is None else value * _MEGATRON_SECONDS[name]
        elif name in _MEGATRON_FLOPS:
            value = number(text)
            told.flops_per_gpu_second = None if value is None else value * TERA
        elif name in _MEGATRON_TOKENS:
            value = told.tokens_per_gpu_second = number(text)
        elif name == "global batch size":
            value = told.samples = number(text)
        else:
            continue
        told.refused += value is None
    return told


def _titan(line: str) -> Told | None:
    found = _TITAN.search(line)
    if found is None:
        return None
    pairs = {name: number(text) for name, text in _TITAN_PAIR.findall(line[found.end() :])}
    flops = pairs.get("tflops")
    return Told(
        kind=Kind.STEP,
        step=int(found[1]),
        stamp=_stamp(line[: found.start()]),
        tokens_per_gpu_second=pairs.get("tps"),
        flops_per_gpu_second=None if flops is None else flops * TERA,
        refused=sum(value is None for value in pairs.values()),
    )


def _deepspeed(line: str) -> Told | None:
    found = _DEEPSPEED.search(line)
    rate, seconds = _DEEPSPEED_RATE.search(line), _DEEPSPEED_SECONDS.search(line)
    if found is None or not (rate or seconds or ", skipped=" in line):
        return None
    told = Told(kind=Kind.STEP, step=int(found[1]), stamp=_stamp(line[: found.start()]))
    told.samples_per_second = number(rate[1]) if rate else None
    told.seconds = number(seconds[1]) if seconds else None
    told.refused = (rate is not None and told.samples_per_second is None) + (
        seconds is not None and told.seconds is None
    )
    return told


def _mark(line: str, marks: tuple[tuple[Kind, re.Pattern[str]], ...]) -> Told | None:
    for kind, pattern in marks:
        if (found := pattern.search(line)) is not None:
            of = {name: _whole(text or "") for name, text in found.groupdict().items() if name != "time"}
            own = found.groupdict().get("time")
            return Told(
                kind=kind,
                step=int(of["step"]) if of.get("step") else None,
                gpus=int(of["gpus"]) if of.get("gpus") else None,
                stamp=own or _stamp(line),
            )
    return None
