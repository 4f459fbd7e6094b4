"""Model FLOPs utilization: how much of the hardware's arithmetic a training job's own numbers account for.

Only declared FLOPs count: tensor activity, which says how busy a pipe was, is never called MFU.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuledger.errors import BadInput
from gpuledger.model import GPU_MODELS, canonical_model

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""Forward and backward pass of a dense transformer: 2 + 4 floating-point operations."""

BF16_MULTIPLES: dict[str, dict[str, float]] = {
    "tf32": dict.fromkeys(
        (
            "GB200",
            "B200",
            "H200",
            "H800",
            "H20",
            "H100-PCIE",
            "H100",
            "A800",
            "A100",
            "A30",
            "A10",
            "L40S",
            "L20",
            "L4",
        ),
        0.5,
    ),
    "fp8": dict.fromkeys(("GB200", "B200", "H200", "H800", "H20", "H100-PCIE", "H100", "L40S", "L20", "L4"), 2.0),
    "fp4": dict.fromkeys(("GB200", "B200"), 4.0),
}
"""The dense peak in a precision as a multiple of that in BF16, from NVIDIA's data sheets (sparse figures halved).

FP16 and BF16 run at one rate on every model that has a BF16 peak here.
"""

FP16_WITHOUT_BF16 = {"V100": 125e12, "T4": 65e12}
"""Dense FP16 peaks of models that have no BF16, in FLOP/s: NVIDIA's data sheets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What a job declares of its model.

    `active_parameters`: parameters that a token passes through (all of a dense model, the chosen experts of a
    mixture). `layers`, `hidden_size` and `sequence_tokens` add the attention term where all three are known.
    """

    active_parameters: float
    layers: int = 0
    hidden_size: int = 0
    sequence_tokens: int = 0

    @property
    def flops_per_token(self) -> float:
        """Training FLOPs a token: 6 P + 12 L h s."""
        attention = 12 * self.layers * self.hidden_size * self.sequence_tokens
        return FLOPS_PER_PARAMETER_AND_TOKEN * self.active_parameters + attention


def model_flops_utilization(
    model: Transformer, *, tokens_per_second: float, gpu_count: int, peak_flops: float
) -> float:
    """MFU of a job (模型算力利用率), a ratio.

    `tokens_per_second` is the whole job's rate, `peak_flops` one GPU's dense peak in the declared precision
    (`GpuModel.peak_bf16_flops`). Raises BadInput for a job without GPUs or without a known peak.
    """
    if gpu_count < 1:
        raise BadInput("gpu_count", "must be at least 1")
    if peak_flops <= 0:
        raise BadInput("peak_flops", "must be positive")
    return model.flops_per_token * tokens_per_second / (gpu_count * peak_flops)


def peak_flops(model: str | None, precision: str) -> float | None:
    """One card's dense peak in `precision`, FLOP/s; None where no data sheet tells it."""
    known = next((one for one in GPU_MODELS if one.model == canonical_model(model)), None)
    if known is None:
        return None
    if known.peak_bf16_flops is None:
        return FP16_WITHOUT_BF16.get(known.model) if precision == "fp16" else None
    if precision in ("bf16", "fp16"):
        return known.peak_bf16_flops
    multiple = BF16_MULTIPLES.get(precision, {}).get(known.model)
    return known.peak_bf16_flops * multiple if multiple else None
