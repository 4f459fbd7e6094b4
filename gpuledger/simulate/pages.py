"""Pages of simulated hosts, from the same blocks as the back-fill."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from gpuledger.errors import BadInput, SourceError
from gpuledger.simulate import exporter_pages, network
from gpuledger.simulate.exporter_pages.hami import Given, scheduler_page
from gpuledger.simulate.exporter_pages.sheet import Holder, Row, Sheet
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.script import Script
from gpuledger.simulate.spec import BLOCK_SECONDS
from gpuledger.simulate.telemetry import Block, Telemetry

KEPT_BLOCKS = 512


class PageMaker:
    """Makes pages, keeping the blocks that they come from."""

    def __init__(self, script: Script, telemetry: Telemetry) -> None:
        self.script = script
        self.telemetry = telemetry
        self._hosts = {host.name: host for host in script.fleet.hosts}
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._energy: dict[int, list[np.ndarray]] = {}
        self._adapters = network.Adapters(script)
        self._holders: dict[int, list[tuple[int, int, Holder]]] = {}
        self._given: dict[int, list[tuple[int, int, Holder]]] = {}
        for run in telemetry.runs:
            holder = Holder(run.namespace, run.name, share=run.share)
            for device in run.devices:
                self._holders.setdefault(device, []).append((run.start * 60, run.shown_until * 60, holder))
                self._given.setdefault(device, []).append((run.start * 60, run.end * 60, holder))

    def first_energy(self, hosts: range) -> np.ndarray:
        """What the energy counters of the devices of `hosts` read when the span begins, in millijoules."""
        fleet = self.script.fleet
        return np.array(
            [
                2_000_000_000_000 + 7_000_003 * device.card
                for host in hosts
                for device in (fleet.devices[row] for row in fleet.devices_of(fleet.hosts[host]))
            ],
            dtype=np.int64,
        )

    def page(self, node: str, second: int) -> bytes:
        """The page of `node` at `second` of the script."""
        host, block = self._answering(node, second)
        tick = (second % BLOCK_SECONDS) // self.script.spec.interval_seconds
        rows = tuple(self._rows(host, block, tick, second))
        return exporter_pages.page(Sheet(self.script.fleet, self.telemetry, host, block, tick, second, rows))

    def network_page(self, node: str, second: int) -> bytes:
        """The node_exporter page of `node` at `second` of the script: the ports of its network adapters."""
        host, block = self._answering(node, second)
        carried = self._adapters.carried_bytes(host, block, second // BLOCK_SECONDS, second)
        return network.page(host, carried)

    def hami_scheduler_page(self, second: int) -> bytes:
        """The page of HAMi's scheduler at `second` of the script: every card of hosts that share theirs by it."""
        fleet, given = self.script.fleet, list[Given]()
        for host in (host for host in fleet.hosts if host.hardware.sharing == "hami"):
            for card in (fleet.cards[index] for index in host.cards):
                held = self._given.get(card.first_device, [])
                given.append((host, card, [holder for begin, end, holder in held if begin <= second < end]))
        return scheduler_page(given)

    def _answering(self, node: str, second: int) -> tuple[Host, Block]:
        """The host and its block; raises BadInput where there is none, SourceError while it does not answer."""
        host = self._hosts.get(node)
        if host is None:
            raise BadInput("node", "no such node")
        block = self._block(host, second // BLOCK_SECONDS)
        if not block.is_read[(second % BLOCK_SECONDS) // self.script.spec.interval_seconds, 0]:
            raise SourceError("the exporter does not answer")
        return host, block

    def _rows(self, host: Host, block: Block, tick: int, second: int) -> Iterator[Row]:
        fleet = self.script.fleet
        for device in fleet.devices_of(host):
            card = fleet.cards[fleet.devices[device].card]
            part = fleet.devices[device].slice
            if not block.is_shown[tick, device - block.devices.start] or (part is None and card.slices):
                continue
            shown = [] if block.is_blank[tick, device - block.devices.start] else self._holders.get(device, [])
            yield Row(device, card, part, [pod for begin, end, pod in shown if begin <= second < end])

    def _block(self, host: Host, number: int) -> Block:
        key = (host.index, number)
        if key not in self._blocks:
            self._blocks[key] = self._make(host, number)
            while len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[key]

    def _make(self, host: Host, number: int) -> Block:
        hosts = range(host.index, host.index + 1)
        known = self._energy.setdefault(host.index, [self.first_energy(hosts)])
        while len(known) <= number:
            earlier = self.telemetry.block(len(known) - 1, hosts, known[-1])
            known.append(earlier.values["energy_mj"][-1])
            self._adapters.follow(host, earlier)
        return self.telemetry.block(number, hosts, known[number])
