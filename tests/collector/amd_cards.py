"""Cards for the stub of amdsmi, as a release of ROCm 6.4 answers for an MI300X."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.sources.amdsmi import AmdsmiSource

STUB = Path(__file__).resolve().parents[1] / "stubs" / "amdsmi"
UUID = "8cff74a1-0000-1000-802{}-1a2b3c4d5e6f"


def card(number: int, **more: Any) -> dict[str, Any]:
    """A whole card with all that it measures; `more` replaces answers, "__" standing for the dot of a kind."""
    told: dict[str, Any] = {
        "gpu_device_uuid": UUID.format(number),
        "gpu_board_info": {"product_serial": f"69240900000{number}", "product_name": "AMD Instinct MI300X"},
        "gpu_asic_info": {"market_name": "AMD Instinct MI300X OAM", "asic_serial": "0x1A2B3C4D5E6F"},
        "gpu_accelerator_partition_profile": {"partition_id": [0], "partition_profile": {"profile_type": "SPX"}},
        "gpu_activity": {"gfx_activity": 97, "umc_activity": 41, "mm_activity": "N/A"},
        "power_info": {"current_socket_power": 612, "average_socket_power": "N/A", "power_limit": 750},
        "energy_count": {"energy_accumulator": 400_000_000, "counter_resolution": 15.25, "timestamp": 1},
        "gpu_vram_usage": {"vram_total": 196_592, "vram_used": 150_000},
        "temp_metric.HOTSPOT": 71,
        "temp_metric.VRAM": 58,
        "clock_info.GFX": {"clk": 2100, "min_clk": 132, "max_clk": 2100},
        "clock_info.MEM": {"clk": 1300},
        "gpu_total_ecc_count": {"correctable_count": 7, "uncorrectable_count": 2},
    }
    return told | {name.replace("__", "."): of for name, of in more.items()}


def source(answers: Path, cards: list[dict[str, Any]] | str, **options: Any) -> AmdsmiSource:
    """A source that reads `cards` from the file `answers`, which may be written anew."""
    answers.write_text(json.dumps(cards))
    environment = {"AMDSMI_STUB": str(answers), "PYTHONPATH": str(STUB)}
    return AmdsmiSource(node="n1", interval_seconds=15, environment=environment, **{"timeout_seconds": 10.0} | options)
