"""A stub of the module amdsmi with two cards; the second does not know its power."""

from __future__ import annotations

import pytest

from tests.collector.amd_cards import UUID, card, source
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    answers = request.getfixturevalue("tmp_path") / "answers.json"
    power = {"current_socket_power": 512.345, "average_socket_power": "N/A"}
    unknown = {"current_socket_power": "N/A", "average_socket_power": "N/A"}
    return Case(
        source=source(answers, [card(0, power_info=power), card(1, power_info=unknown)]),
        break_it=lambda: answers.write_text('"AMDSMI_STATUS_DRIVER_NOT_LOADED"'),
        uuids=(UUID.format(0), UUID.format(1)),
        model="MI300X",
    )
