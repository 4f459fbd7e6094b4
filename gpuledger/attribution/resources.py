"""Which of the resources that kube-state-metrics names are GPUs.

It writes `nvidia.com/gpu` as `nvidia_com_gpu`: dots, slashes and dashes become underscores, capitals stay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache

WHOLE_CARD = "nvidia_com_gpu"

_GPU = re.compile(
    r"nvidia_com_(gpu(_shared)?|mig_\w+)"
    r"|(amd|iluvatar|metax_tech|mthreads|birentech|nebius)_com_v?gpu|metax_tech_com_sgpu|iluvatar_ai_(\w+_)?v?gpu"
    r"|amd_com_[sdtqc]px_nps\d|gpu_intel_com_(i915|xe)"
    r"|huawei_com_(npu|[Aa]scend\w*)"
    r"|cambricon_com_v?mlu\w*|hygon_com_v?dcu\w*|enflame_com_v?gcu|kunlunxin_com_v?xpu|habana_ai_gaudi"
    r"|volcano_sh_(gpu|vgpu)_number"
)
_PARTS = re.compile(
    r"(nvidia|amd)_com_gpu(mem|cores)\w*|volcano_sh_(gpu|vgpu)_(memory|cores)\w*|aliyun_com_gpu_mem"
    r"|huawei_com_([Aa]scend\w*|npu)_(memory|core)|cambricon_com_\w*mlu\w*?(mem|memory|cores?)"
    r"|hygon_com_v?dcu(mem|cores)|metax_tech_com_v(memory|core)|mthreads_com_[sv]gpu_(memory|core)\w*"
    r"|kunlunxin_com_v?xpu_memory|enflame_com_v?gcu_(percentage|memory|core)|iluvatar_ai_\w+v?(mem|core)",
    re.IGNORECASE,
)
"""Memory and cores of shared cards, in MiB and percent: they count no cards, whatever vendor's name they carry."""
_WHOLE = re.compile(
    r"(nvidia|amd|iluvatar|metax_tech|mthreads|birentech|nebius)_com_gpu|iluvatar_ai_gpu|gpu_intel_com_(i915|xe)"
    r"|huawei_com_(npu|[Aa]scend(?!\w*_\d+c(_|$))\w*)|cambricon_com_mlu(\d\w*)?|hygon_com_dcu(num)?|enflame_com_gcu"
    r"|kunlunxin_com_xpu|habana_ai_gaudi"
)
"""A vNPU (`huawei_com_Ascend310P_4c_3cpu`) is a part of a card."""


@lru_cache(maxsize=1024)
def is_gpu(resource: str) -> bool:
    """Whether `resource` counts GPUs, slices of them, or shares in them."""
    return _GPU.fullmatch(resource) is not None and not is_part(resource)


@lru_cache(maxsize=1024)
def is_part(resource: str) -> bool:
    """Whether `resource` says how much of a card is meant: a pod that asks for it shares its cards (HAMi)."""
    return _PARTS.fullmatch(resource) is not None


@lru_cache(maxsize=1024)
def is_whole(resource: str) -> bool:
    """Whether one of `resource` is one card, as far as the name can say."""
    return _WHOLE.fullmatch(resource) is not None and is_gpu(resource)


def is_shared(resource: str, others: Iterable[str]) -> bool:
    """Whether a pod that asks for `others`, too, gets only parts of the cards that it asks for as `resource`."""
    vendor = resource.partition("_")[0]
    return is_whole(resource) and any(is_part(other) and other.partition("_")[0] == vendor for other in others)


def shared(resource: str) -> str:
    """The name in records of cards of which a pod gets parts."""
    return f"{resource}_shared"


def cards(
    capacity: Mapping[str, float],
    offered: Mapping[str, float],
    label: Callable[[str], str | None],
    further: Container[str] = (),
) -> int | None:
    """How many physical cards `offered` are of the GPU resources in a node's `capacity`; None where nobody can tell.

    `label` looks up a label of the node; one of `further` resources is a card, too. Copies (time-slicing) are divided.
    A count of slices says nothing of cards: where whole cards are cut into equal ones the label `gpu.count` counts
    slices, too.
    """
    if any(offered.values()) and "-MIG-" in (label("nvidia.com/gpu.product") or ""):
        return None
    replicas, labelled = label("nvidia.com/gpu.replicas") or "", label("nvidia.com/gpu.count") or ""
    copies = max(1, int(replicas)) if replicas.isdecimal() else 1
    whole = {name: count for name, count in capacity.items() if is_whole(name) or name in further}
    if not labelled.isdecimal():
        both = (*capacity.items(), *offered.items())
        has_slices = any(count for name, count in both if not is_whole(name) and name not in further)
        return None if has_slices or not offered else int(sum(offered.values()) // copies)
    return _left_of(int(labelled), whole, offered, copies) if any(offered.values()) else 0


def _left_of(cards_there: int, whole: Mapping[str, float], offered: Mapping[str, float], copies: int) -> int:
    """The cards that are left where less is offered than there is: a card that is lost takes its copies with it."""
    lost = sum(max(0.0, count - offered.get(name, 0.0)) for name, count in whole.items())
    per_card = max(copies, sum(whole.values()) / cards_there) if cards_there else 1
    return max(0, cards_there - math.ceil(lost / per_card))
