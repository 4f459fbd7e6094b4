"""The warehouse of the reported faults."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuledger.testing import FakeClock
from tests.acceptance.house import AT, House
from warehouse import Warehouse


@pytest.fixture
def house() -> Iterator[House]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield House(opened)
