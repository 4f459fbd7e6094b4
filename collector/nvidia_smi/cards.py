"""What is remembered between two runs of nvidia-smi: which card sits at which PCI address, and which are lost.

A lost card is told by its address only. Seen before, it has a name, and a dated condition can be written for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from collector.nvidia_smi.table import Device, Health
from gpuledger.model import Condition


class Cards:
    """The cards of one node."""

    def __init__(self) -> None:
        self._by_address: dict[str, str] = {}
        self._lost_since: dict[str, datetime] = {}

    def uuid_of(self, device: Device) -> str | None:
        """The device's UUID: its own, or that of the card last seen at its address."""
        if device.uuid and device.pci:
            self._by_address[device.pci] = device.uuid
        return device.uuid or self._by_address.get(device.pci or "")

    def conditions(
        self, devices: Iterable[Device], now: datetime, *, lasting: timedelta, source: str
    ) -> list[Condition]:
        """`gpu_lost` of every card that is lost now, or was until now.

        While lost it holds for `lasting` from each read on, so that an agent that dies leaves no card lost for ever.
        """
        by_uuid = {uuid: device for device in devices if (uuid := self.uuid_of(device))}
        lost = {uuid for uuid, device in by_uuid.items() if device.health is Health.LOST}
        back = (self._lost_since.keys() & by_uuid.keys()) - lost
        for uuid in sorted(lost):
            self._lost_since.setdefault(uuid, now)
        found = [self._condition(uuid, now + lasting, source) for uuid in sorted(lost)]
        found += [self._condition(uuid, now, source) for uuid in sorted(back)]
        for uuid in back:
            del self._lost_since[uuid]
        return found

    def _condition(self, uuid: str, until_at: datetime, source: str) -> Condition:
        return Condition(
            subject_kind="gpu",
            subject=uuid,
            condition="gpu_lost",
            from_at=self._lost_since[uuid],
            until_at=until_at,
            reason="nvidia-smi says that the GPU is lost",
            source=source,
        )
