"""The machines: hosts, cards and MIG slices, and the records of the inventory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import numpy as np

from gpuledger.model import GPU_MODELS, GpuModel
from gpuledger.simulate.spec import GPUS_PER_NODE, FleetSpec

HOSTS_PER_LEAF = 4
LEAVES_PER_SPINE = 4
SOURCE_OF_VENDOR = {"nvidia": "dcgm", "ascend": "npu_exporter", "amd": "amd_exporter"}


@dataclass(frozen=True, slots=True)
class MigSlice:
    """A GPU instance; `slice_id` is its GPU instance id, `share` its compute slices over the card's."""

    slice_id: str
    profile: str
    share: float
    fb_total_mib: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the hosts of a pool are made of. Memory in MiB, clocks in MHz; `weight` is the pool's part of a fleet.

    `layouts` are how its cards are cut under MIG, one card after the other; without any it is not in use. `sharing`
    names what gives parts of its cards to pods ("hami"). `shows_profiling`: an AMD exporter was told to show its
    profiling counters, which it does not by itself.
    """

    pool: str
    model: str
    product: str
    weight: float
    cpu_cores: int
    memory_mib: int
    fb_total_mib: int
    sm_clock_mhz: int
    mem_clock_mhz: int
    layouts: tuple[tuple[MigSlice, ...], ...] = ()
    sharing: str = ""
    shows_profiling: bool = False

    @property
    def is_mig(self) -> bool:
        """Whether its cards are cut into slices."""
        return bool(self.layouts)

    @property
    def facts(self) -> GpuModel:
        """The vendor's facts about the model."""
        return next(known for known in GPU_MODELS if known.model == self.model)

    @property
    def source(self) -> str:
        """The source that reads its cards."""
        return self.sharing or SOURCE_OF_VENDOR[self.facts.vendor]

    @property
    def has_hbm(self) -> bool:
        """Whether its cards have memory of high bandwidth: of Ascend's a 310P has none, and no port of its own."""
        return self.model != "Ascend 310P"

    def part_resource(self, part: MigSlice) -> str:
        """What a pod asks for to get `part`, as kube-state-metrics writes it."""
        if self.facts.vendor == "ascend":
            return f"huawei_com_{self.model.replace(' ', '')}_{float(part.profile):g}c"
        if self.facts.vendor == "amd":
            return f"amd_com_{part.profile}_{'nps4' if part.profile == 'cpx' else 'nps2'}"
        return "nvidia_com_mig_" + part.profile.replace(".", "_")


def _slices(profile: str, parts: int, fb_total_mib: int, *ids: str) -> tuple[MigSlice, ...]:
    return tuple(MigSlice(number, profile, parts / 7, fb_total_mib) for number in ids)


MIG_LAYOUT = (
    *_slices("3g.40gb", 3, 40_192, "2"),
    *_slices("2g.20gb", 2, 19_968, "3"),
    *_slices("1g.10gb", 1, 9_728, "9", "10"),
)
MIG_LAYOUTS = (
    MIG_LAYOUT,
    (*_slices("4g.40gb", 4, 40_192, "1"), *_slices("3g.40gb", 3, 40_192, "2")),
    _slices("1g.10gb", 1, 9_728, "7", "8", "9", "10", "11", "12", "13"),
    _slices("2g.20gb", 2, 19_968, "3", "4", "5"),
    _slices("7g.80gb", 7, 80_384, "0"),
)
"""The three slices of the fourth leave a seventh of their card to nobody."""


def _vnpus(*cores: int) -> tuple[MigSlice, ...]:
    """Parts of a 310P with so many of its eight AI Cores."""
    return tuple(
        MigSlice(str(100 + place), f"{count:.2f}", count / 8, 21_527 * count // 8) for place, count in enumerate(cores)
    )


VNPU_LAYOUTS = (_vnpus(4, 2, 1, 1), _vnpus(4, 4), _vnpus(1, 1, 1, 1, 1, 1, 1), _vnpus(2, 2, 2))
"""The last two leave an eighth and a quarter of their chip to nobody."""


def _partitions(mode: str, count: int) -> tuple[MigSlice, ...]:
    """An MI300X as so many partitions."""
    return tuple(MigSlice(str(place), mode, 1 / count, 196_592 // count) for place in range(count))


PARTITIONS = (_partitions("cpx", 8), _partitions("dpx", 2))

HARDWARE = (
    Hardware("h100-train", "H100", "NVIDIA H100 80GB HBM3", 0.42, 192, 2_064_384, 81_559, 1_980, 2_619),
    Hardware("a100-shared", "A100", "NVIDIA A100-SXM4-80GB", 0.24, 128, 1_032_192, 81_920, 1_410, 1_593),
    Hardware("l40s-serve", "L40S", "NVIDIA L40S", 0.14, 96, 774_144, 46_068, 2_520, 9_001),
    Hardware(
        "a100-mig",
        "A100",
        "NVIDIA A100-SXM4-80GB",
        0.06,
        128,
        1_032_192,
        81_920,
        1_410,
        1_593,
        layouts=(MIG_LAYOUT,),
    ),
    Hardware("h20-serve", "H20", "NVIDIA H20", 0.14, 192, 2_064_384, 97_871, 1_980, 2_619),
)
"""In the order in which a small fleet gets its first host of each."""

H100, A100, L40S, _, H20 = (replace(hardware, weight=1.0) for hardware in HARDWARE)
ASCEND = Hardware("npu-train", "Ascend 910B", "Ascend 910B", 3.0, 192, 1_548_288, 65_536, 1_500, 1_600)
ASCEND_310P = Hardware("npu-serve", "Ascend 310P", "Ascend 310P", 1.0, 64, 524_288, 21_527, 1_080, 1_600)
MI300X = Hardware("mi300x-train", "MI300X", "AMD Instinct MI300X OAM", 1.0, 192, 2_064_384, 196_592, 2_100, 1_300)

OF_SCENARIO = {
    "every_vendor": (
        *(replace(hardware, weight=0.76 * hardware.weight) for hardware in HARDWARE),
        replace(ASCEND, weight=0.12),
        replace(MI300X, weight=0.08),
        replace(L40S, pool="l40s-hami", weight=0.04, sharing="hami"),
    ),
    "training": (replace(H100, weight=0.6), replace(A100, weight=0.4)),
    "serving": (replace(H20, weight=0.4), replace(L40S, weight=0.3), replace(H100, weight=0.3)),
    "notebooks": (replace(A100, weight=0.4), replace(L40S, weight=0.3), replace(H100, weight=0.3)),
    "ascend": (replace(ASCEND, weight=0.7), replace(H100, weight=0.3)),
    "npu": (replace(ASCEND, weight=0.5), replace(ASCEND_310P, weight=0.5, layouts=VNPU_LAYOUTS)),
    "amd": (
        replace(MI300X, weight=0.5, shows_profiling=True),
        replace(MI300X, pool="mi300x-parted", weight=0.5, layouts=PARTITIONS),
    ),
    "clean": (replace(H100, weight=0.4), replace(A100, weight=0.3), replace(H20, weight=0.3)),
    "mig": (
        Hardware("a100-mig", "A100", "NVIDIA A100-SXM4-80GB", 0.5, 128, 1_032_192, 81_920, 1_410, 1_593, MIG_LAYOUTS),
        Hardware("h100-mig", "H100", "NVIDIA H100 80GB HBM3", 0.5, 192, 2_064_384, 81_559, 1_980, 2_619, MIG_LAYOUTS),
    ),
    "hami": (
        replace(A100, pool="a100-hami", weight=0.5, sharing="hami"),
        replace(L40S, pool="l40s-hami", weight=0.5, sharing="hami"),
    ),
    "one_of_each": (
        replace(H100, weight=1 / 7),
        replace(L40S, weight=2 / 7),
        replace(HARDWARE[3], weight=1 / 7),
        replace(A100, pool="a100-hami", weight=1 / 7, sharing="hami"),
        replace(ASCEND, weight=1 / 7),
        replace(MI300X, weight=1 / 7, shows_profiling=True),
    ),
    "timeslice": (
        Hardware("a100-timeslice", "A100", "NVIDIA A100-SXM4-80GB", 0.5, 128, 1_032_192, 81_920, 1_410, 1_593),
        Hardware("l40s-timeslice", "L40S", "NVIDIA L40S", 0.5, 96, 774_144, 46_068, 2_520, 9_001),
    ),
}
"""Fleets that are made of something else."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. `index` and `host` are positions in the fleet's lists.

    `first_device` is the position of its own row; its slices' rows follow.
    """

    index: int
    host: int
    slot: int
    gpu_uuid: str
    pci_bus_id: str
    first_device: int
    slices: tuple[MigSlice, ...]


@dataclass(frozen=True, slots=True)
class Host:
    """One node with its eight cards (positions in the fleet's list)."""

    index: int
    name: str
    hardware: Hardware
    leaf: str
    spine: str
    cards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """What one reading is about: a card, or one MIG slice of it (a card's own row comes first)."""

    card: int
    slice: MigSlice | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts, cards and devices, each in the order of its index; a host's devices lie side by side."""

    hosts: tuple[Host, ...]
    cards: tuple[Card, ...]
    devices: tuple[Device, ...]

    def pool(self, name: str) -> list[Host]:
        """The hosts of one pool."""
        return [host for host in self.hosts if host.hardware.pool == name]

    def devices_of(self, host: Host) -> range:
        """The positions of a host's devices."""
        first = self.cards[host.cards[0]].first_device
        last = self.cards[host.cards[-1]]
        return range(first, last.first_device + 1 + len(last.slices))

    def host_of(self, card: int) -> Host:
        """The host that a card sits in."""
        return self.hosts[self.cards[card].host]


def pool_sizes(nodes: int, table: tuple[Hardware, ...] = HARDWARE) -> list[int]:
    """How many hosts each of `table` gets: by weight, and at least one each while there are enough."""
    ideal = [hardware.weight * nodes for hardware in table]
    sizes = [int(value) for value in ideal]
    for position in range(min(nodes, len(sizes))):
        sizes[position] = max(sizes[position], 1)
    while sum(sizes) > nodes:
        sizes[int(np.argmax(sizes))] -= 1
    while sum(sizes) < nodes:
        sizes[int(np.argmax(np.subtract(ideal, sizes)))] += 1
    return sizes


def build_fleet(spec: FleetSpec) -> Fleet:
    """The fleet of `spec`; names and UUIDs depend on the seed and the size only."""
    rng = np.random.default_rng([spec.seed, 1])
    hosts: list[Host] = []
    cards: list[Card] = []
    devices: list[Device] = []
    table = OF_SCENARIO.get(spec.scenario, HARDWARE)
    for hardware, size in zip(table, pool_sizes(spec.nodes, table), strict=True):
        for number in range(size):
            leaf = number // HOSTS_PER_LEAF
            index = len(hosts)
            own = []
            for slot in range(GPUS_PER_NODE):
                card = _card(rng, (len(cards), index, slot), len(devices), hardware)
                devices += [Device(card.index, None), *(Device(card.index, part) for part in card.slices)]
                cards.append(card)
                own.append(card.index)
            place = (f"{hardware.pool}-leaf{leaf + 1}", f"{hardware.pool}-spine{leaf // LEAVES_PER_SPINE + 1}")
            hosts.append(Host(index, f"{hardware.pool}-{number + 1:03d}", hardware, *place, tuple(own)))
    return Fleet(tuple(hosts), tuple(cards), tuple(devices))


def _card(rng: np.random.Generator, place: tuple[int, int, int], first_device: int, hardware: Hardware) -> Card:
    index, host, slot = place
    return Card(
        index=index,
        host=host,
        slot=slot,
        gpu_uuid=f"GPU-{uuid.UUID(bytes=rng.bytes(16), version=4)}",
        pci_bus_id=f"00000000:{0x1B + slot * 0x11:02X}:00.0",
        first_device=first_device,
        slices=hardware.layouts[index % len(hardware.layouts)] if hardware.layouts else (),
    )
