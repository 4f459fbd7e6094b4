"""Which of the resources that kube-state-metrics names are GPUs.

It writes `nvidia.com/gpu` as `nvidia_com_gpu`: dots, slashes and dashes become underscores, capitals stay.
"""

from __future__ import annotations

import re
from functools import lru_cache

WHOLE_CARD = "nvidia_com_gpu"
SHARED_CARD = "nvidia_com_gpu_shared"

_GPU = re.compile(
    r"nvidia_com_(gpu(_shared)?|mig_\w+)"
    r"|(amd|iluvatar|metax_tech|mthreads|birentech|nebius)_com_v?gpu"
    r"|gpu_intel_com_(i915|xe)"
    r"|huawei_com_(npu|[Aa]scend\w*)"
    r"|cambricon_com_v?mlu\w*|hygon_com_v?dcu\w*|enflame_com_gcu|kunlunxin_com_v?xpu|habana_ai_gaudi"
    r"|volcano_sh_(gpu|vgpu)_number"
)
_PARTS = re.compile(r"(nvidia_com_gpu(mem|cores)\w*|volcano_sh_(gpu|vgpu)_(memory|cores)|aliyun_com_gpu_mem)")
_WHOLE = re.compile(
    r"(nvidia|amd|iluvatar|metax_tech|mthreads|birentech|nebius)_com_gpu|gpu_intel_com_\w+|huawei_com_\w+"
)


@lru_cache(maxsize=1024)
def is_gpu(resource: str) -> bool:
    """Whether `resource` counts GPUs, slices of them, or shares in them."""
    return _GPU.fullmatch(resource) is not None


@lru_cache(maxsize=1024)
def is_part(resource: str) -> bool:
    """Whether `resource` says how much of a card is meant: a pod that asks for it shares its cards (HAMi)."""
    return _PARTS.fullmatch(resource) is not None


@lru_cache(maxsize=1024)
def is_whole(resource: str) -> bool:
    """Whether one of `resource` is one card, as far as the name can say."""
    return _WHOLE.fullmatch(resource) is not None
