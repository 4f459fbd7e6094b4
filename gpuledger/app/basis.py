"""How the ledger would shift between states if some counters were switched off: `GET /v1/basis-shift`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response

from gpuledger.app.encoding import to_json
from gpuledger.errors import BadInput
from gpuledger.model import State, Window
from warehouse import Warehouse

DEFAULT_WITHOUT = "sm_active_ratio"


def basis_shift(warehouse: Warehouse, window: Window, asked: Mapping[str, str]) -> dict[str, Any]:
    """GPU-hours by state with all counters and without those in `without` (comma-separated; default SM activity).

    `matrix` has the pairs of states that hold any GPU-hours, `states` both sums of each state, in the order of State.
    Raises BadInput for a counter that cannot be left out and for a window that is too long to judge again.
    """
    if strange := sorted(asked.keys() - {"without"}):
        raise BadInput(strange[0][:40], "is not known here")
    words = (asked.get("without") or DEFAULT_WITHOUT).split(",")
    found = warehouse.basis_shift(window, without=tuple(word.strip() for word in words if word.strip()))
    cells = found.gpu_hours
    present = [state for state in State if any(state in pair for pair in cells)]
    return {
        "from": found.window.from_at,
        "to": found.window.to_at,
        "without": list(found.without),
        "states": [
            {
                "state": str(state),
                "gpu_hours_with": sum(hours for (one, _), hours in cells.items() if one == state),
                "gpu_hours_without": sum(hours for (_, one), hours in cells.items() if one == state),
            }
            for state in present
        ],
        "matrix": [
            {"state_with": str(one), "state_without": str(other), "gpu_hours": cells[one, other]}
            for one in present
            for other in present
            if (one, other) in cells
        ],
    }


def register(app: FastAPI) -> None:
    """Add the route to `app`."""

    @app.get("/v1/basis-shift")
    def read_basis_shift(request: Request) -> Response:
        """GPU-hours by state as judged, and as judged without some counters."""
        service, given = request.app.state.service, dict(request.query_params)
        window = service.ledger_window(given.pop("from", None), given.pop("to", None))
        found = basis_shift(service.warehouse, window, given)
        return Response(to_json(found), media_type="application/json")
