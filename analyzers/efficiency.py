"""Model FLOPs utilization: how much of the hardware's arithmetic a training job's own numbers account for.

Only declared FLOPs count: tensor activity, which says how busy a pipe was, is never called MFU.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuledger.errors import BadInput

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""Forward and backward pass of a dense transformer: 2 + 4 floating-point operations."""


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
