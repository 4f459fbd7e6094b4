"""What one host shows at one instant, before an exporter's format is put on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.simulate.fleet import Card, Fleet, Host, MigSlice
from gpuledger.simulate.pods import CONTAINER
from gpuledger.simulate.telemetry import FB_RESERVED_MIB, Block, Telemetry


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that labels name, and the share of its card that it was given."""

    namespace: str
    pod: str
    container: str = CONTAINER
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """A card or slice that the page lists (`device` is its position in the fleet), and the pods that labels name."""

    device: int
    card: Card
    slice: MigSlice | None
    holders: Sequence[Holder]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The rows of a page of `host` at `second` of the script, in the order of devices; whole cards or their slices."""

    fleet: Fleet
    telemetry: Telemetry
    host: Host
    block: Block
    tick: int
    second: int
    rows: Sequence[Row]

    def own(self, key: str, device: int) -> int:
        """What the block has of `device` under `key`, in the block's units."""
        return int(self.block.values[key][self.tick, device - self.block.devices.start])

    def of_card(self, key: str, device: int) -> int:
        """The same of the card that `device` is a part of."""
        return self.own(key, self.fleet.cards[self.fleet.devices[device].card].first_device)

    def fb_free_mib(self, device: int) -> int:
        """Free framebuffer of a card or slice."""
        return self.telemetry.fb_total_mib(device) - FB_RESERVED_MIB - self.own("fb_used_mib", device)
