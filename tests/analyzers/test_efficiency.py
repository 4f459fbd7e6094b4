"""Worked examples A1 (its means) and A2, and the edges of MFU."""

from __future__ import annotations

import pytest

from analyzers.efficiency import Transformer, model_flops_utilization
from gpuledger.errors import BadInput
from gpuledger.model import GPU_MODELS

H100 = next(model for model in GPU_MODELS if model.model == "H100")


def test_a1_means() -> None:
    minutes = [0.0] * 10 + [0.9] * 40 + [0.0] * 45 + [0.4] * 2 + [0.0] * 23
    assert sum(minutes) / 120 == pytest.approx(0.30667, abs=5e-6)
    assert sum(value < 0.05 for value in minutes) / 120 == pytest.approx(0.65)


def test_a2_mfu() -> None:
    assert H100.peak_bf16_flops == 989e12
    mfu = model_flops_utilization(
        Transformer(active_parameters=70e9), tokens_per_second=4500, gpu_count=8, peak_flops=H100.peak_bf16_flops
    )
    assert mfu == pytest.approx(0.2389, abs=5e-5)


def test_attention_adds_to_the_tokens_flops() -> None:
    model = Transformer(active_parameters=1e9, layers=10, hidden_size=100, sequence_tokens=1000)
    assert model.flops_per_token == 6e9 + 12e6


@pytest.mark.parametrize(("gpu_count", "peak_flops", "field"), [(0, 1e15, "gpu_count"), (8, 0, "peak_flops")])
def test_what_cannot_be_divided_is_refused(gpu_count: int, peak_flops: float, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        model_flops_utilization(
            Transformer(active_parameters=1), tokens_per_second=1, gpu_count=gpu_count, peak_flops=peak_flops
        )
    assert refused.value.field == field
