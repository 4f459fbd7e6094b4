"""What NVML tells of cards, from the snapshots of a node to findings that name card, node, job and advice."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from collector.nvml.incidents import Incidents
from collector.nvml.records import Pass, parse
from gpuledger.app.faults import RULE, FaultWatch
from gpuledger.model import to_table
from tests.app.conftest import NOW, Api

RECORDING = Path(__file__).parents[1] / "collector" / "recordings" / "nvml_snapshots.json"
LOST, OTHER = (f"GPU-0000000{index}-0000-0000-0000-000000000000" for index in range(2))


def test_errors_and_lost_cards_become_findings(api: Api) -> None:
    watch = FaultWatch(api.service, lambda _: None)
    incidents = Incidents()
    for number, snapshot in enumerate(json.loads(RECORDING.read_text())):
        taken = Pass(NOW - timedelta(seconds=60 - 15 * number), "n1", 15)
        observation = parse(snapshot, taken)
        rows = {"reading": observation.readings, "source_read": observation.reads, "holding": observation.holdings}
        for record, of_record in (rows | dict(incidents.note(snapshot, taken))).items():
            if of_record:
                answer = api.put(record, to_table(record, of_record), f"{record}-{number}")
                assert answer.status_code == 200, answer.text
        watch.look()
    found = {row["subject_id"]: row["action_params"] for row in api.service.findings() if row["analyzer"] == RULE}
    assert set(found) == {f"{LOST}/gpu_lost", f"{OTHER}/xid-31"}
    assert {params["node"] for params in found.values()} == {"n1"}
    # The driver's advice, which came after the XID, is what is to be done; the Slurm job's processes were on the card.
    advised = found[f"{OTHER}/xid-31"]
    assert (advised["action"], advised["action_by"]) == ("reset_gpu", "driver")
    assert [job["workload_id"] for job in advised["jobs"]] == ["slurm/4711"]
    with api.service.warehouse.writing() as cursor:
        assert cursor.execute("select subject, condition, until_at from condition").fetchall() == [
            (LOST, "gpu_lost", NOW - timedelta(seconds=45) + timedelta(seconds=45))
        ]
