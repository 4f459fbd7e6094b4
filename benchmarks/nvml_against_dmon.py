"""The agent's source beside `nvidia-smi dmon` on a real card, idle and then under a matrix product: do they agree?

    python benchmarks/nvml_against_dmon.py [SECONDS]

Needs an NVIDIA card and nvidia-smi. Both read once a second for SECONDS (120), in the second half of which the first
card multiplies matrices (by torch, where it can be imported, else by cuBLAS). Prints the means of both halves, the
seconds in which something changes left out, and ends with 1 where utilization or SM activity differ by more than five
percent points or memory by more than 2 %. SM activity is compared where GPM offers it (Hopper and later).

It was written without a card, and has run on none yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.sources.nvml import NvmlSource

SIZE = 8192
UNSURE_SECONDS = 8
"""After work begins: what starts (a context, a first product) is no steady state."""

GPM_SM_UTIL = "2"
POINTS, MEMORY_RATIO = 0.05, 0.02
COLUMNS = ("utilization", "SM activity", "memory, MiB")
Sample = tuple[float, dict[str, float]]


def ours(until: float, samples: list[Sample]) -> None:
    """Read the first card once a second."""
    source = NvmlSource(node="here", interval_seconds=1, timeout_seconds=5)
    try:
        while time.time() < until:
            started = time.time()
            cards = [row for row in source.read(datetime.now(UTC)).readings if not row.slice_id]
            if cards:
                card = cards[0]
                values = (card.gpu_util_ratio, card.sm_active_ratio, _over(card.fb_used_bytes, 2**20))
                samples.append((started, {n: v for n, v in zip(COLUMNS, values, strict=True) if v is not None}))
            time.sleep(max(0.0, started + 1 - time.time()))
    finally:
        source.close()


def theirs(lines: Iterable[str], samples: list[Sample]) -> None:
    """Take in what dmon prints: a line "# gpu ..." names the columns, "-" is no value, the GPM metric comes last."""
    names: list[str] = []
    for line in lines:
        cells = line.lstrip("# ").replace(",", " ").split()
        if line.startswith("#"):
            names = cells if "gpu" in cells else names
            continue
        given = dict(zip(names, cells, strict=False))
        percents = (given.get("sm"), cells[-1])
        values = (*(_over(_number(text), 100) for text in percents), _number(given.get("fb")))
        samples.append((time.time(), {n: v for n, v in zip(COLUMNS, values, strict=True) if v is not None}))


def _number(text: str | None) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(text)  # type: ignore[arg-type]
    return None


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def products(until: float) -> None:
    """Multiply matrices on the first card."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 optional
    except ImportError:
        for _ in _cublas_products():
            if time.time() >= until:
                return
    else:
        left = torch.ones(SIZE, SIZE, device="cuda")
        while time.time() < until:
            left @ left
            torch.cuda.synchronize()


def _cublas_products() -> Iterator[None]:
    runtime, blas = (ctypes.CDLL(name) for name in ("libcudart.so", "libcublas.so"))
    matrices = [ctypes.c_void_p() for _ in range(3)]
    for matrix in matrices:
        _check(runtime.cudaMalloc(ctypes.byref(matrix), ctypes.c_size_t(4 * SIZE * SIZE)))
        _check(runtime.cudaMemset(matrix, 0, ctypes.c_size_t(4 * SIZE * SIZE)))
    handle, one, zero, size = ctypes.c_void_p(), ctypes.c_float(1), ctypes.c_float(0), ctypes.c_int(SIZE)
    _check(blas.cublasCreate_v2(ctypes.byref(handle)))
    left, right, result = matrices
    while True:
        scale = (ctypes.byref(one), left, size, right, size, ctypes.byref(zero), result, size)
        _check(blas.cublasSgemm_v2(handle, 0, 0, size, size, size, *scale))
        _check(runtime.cudaDeviceSynchronize())
        yield


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA says {code}")


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def mean(samples: list[Sample], name: str, since: float, until: float) -> float | None:
    """The mean of what was sampled in [since, until)."""
    values = [values[name] for at, values in samples if since <= at < until and name in values]
    return statistics.fmean(values) if values else None


def main() -> int:
    """Print the table."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        print("nvidia-smi is missing: there is no card to compare on")
        return 0
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    begun = time.time()
    half, until = begun + seconds / 2, begun + seconds
    command = [smi, "dmon", "-i", "0", "-s", "um", "--gpm-metrics", GPM_SM_UTIL, "-d", "1"]
    dmon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)
    read, shown = list[Sample](), list[Sample]()
    threads = [
        threading.Thread(target=ours, args=(until, read)),
        threading.Thread(target=theirs, args=(dmon.stdout, shown), daemon=True),
    ]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, half - time.time()))
    products(until)
    threads[0].join()
    dmon.terminate()
    differs = False
    print(f"{'':<14}{'':<14}{'agent':>10}{'dmon':>10}")
    for phase, since, end in (("idle", begun + 2, half), ("matrix product", half + UNSURE_SECONDS, until)):
        for name in COLUMNS:
            agent, dmon_says = mean(read, name, since, end), mean(shown, name, since, end)
            print(f"{phase:<14}  {name:<14}{_text(agent):>10}{_text(dmon_says):>10}")
            if agent is not None and dmon_says is not None:
                bound = MEMORY_RATIO * max(1.0, agent, dmon_says) if name == COLUMNS[2] else POINTS
                differs |= abs(agent - dmon_says) > bound
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
