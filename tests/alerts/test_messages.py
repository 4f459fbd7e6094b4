from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from alerts import messages
from alerts.channels.webhook import body
from alerts.heartbeat import beat, heartbeat_message
from gpuledger.errors import ConfigError
from gpuledger.model import Finding
from gpuledger.ports import Delivery
from gpuledger.testing import FakeClock

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)
FINDING = Finding(
    analyzer="idle_allocation",
    rule_id="idle_allocation",
    rule_version=1,
    subject_kind="workload",
    subject_id="job-1",
    tenant="research",
    window_start=datetime(2026, 3, 1, 2, tzinfo=UTC),
    window_end=datetime(2026, 3, 1, 7, 50, tzinfo=UTC),
    gpu_hours_observed=60.0,
    gpu_hours_wasted=46.667,
    gpu_hours_recoverable=46.667,
    confidence=0.97,
    basis="sm_active",
    cause_code="no_process",
    action_code="notify",
    action_params={"gpu_count": 8},
)


def test_a_finding_reads_plainly_and_blames_nobody():
    message = messages.finding_message(FINDING, AT)
    assert message.title == "Held, idle: 47 GPU-h at Workload job-1"
    assert message.text.startswith("Workload job-1: 8 GPUs held, no process for 5 h 50 min, 47 GPU-h.")
    assert "Would change the verdict: mark it as standby" in message.text
    assert "$" not in message.text


def test_chinese_words_and_local_time():
    message = messages.finding_message(FINDING, AT, language="zh", timezone="Asia/Shanghai")
    assert message.title == "空闲占卡\uff1a任务 job-1\uff0c47 卡时"
    assert "2026-03-01 10:00 \N{EN DASH} 2026-03-01 15:50 Asia/Shanghai" in message.text


def test_the_key_names_the_finding_whatever_its_numbers():
    grown = replace(FINDING, gpu_hours_wasted=900.0, window_end=AT, confidence=0.5, cause_code="memory_held")
    other = replace(FINDING, subject_id="job-2")
    keys = [messages.finding_message(each, AT).key for each in (FINDING, grown, other)]
    assert keys[0] == keys[1] != keys[2]
    assert max(map(len, keys)) <= 128


@pytest.mark.parametrize(("hours", "name"), [(0, "info"), (99.9, "info"), (100, "warning"), (1000, "critical")])
def test_severity_follows_the_cost(hours, name):
    finding = replace(FINDING, gpu_hours_wasted=hours, gpu_hours_observed=hours, gpu_hours_recoverable=0.0)
    assert messages.finding_message(finding, AT).severity == name


def test_hostile_names_stay_on_their_line_and_are_not_templates():
    finding = replace(FINDING, subject_id="x\nTenant: $wasted {0} \u202e\x00", tenant="$basis")
    text = messages.finding_message(finding, AT).text
    assert text.startswith("Workload x Tenant: $wasted {0}: 8 GPUs")
    assert "Tenant: $basis\n" in text


def test_an_operator_may_change_the_words(tmp_path):
    (tmp_path / "finding.txt").write_text("$wasted!\n$cause at 100 $$", encoding="utf-8")
    template = messages.load_template("en", tmp_path)
    message = messages.finding_message(FINDING, AT, template=template)
    assert (message.title, message.text) == ("47 GPU-h!", "held, no process at 100 $")
    assert messages.load_template("zh", tmp_path).template == messages.load_template("zh").template


@pytest.mark.parametrize(("text", "named"), [("$wastde", "wastde"), ("costs $ 5", "doubled")])
def test_a_wrong_template_is_refused_by_name(tmp_path, text, named):
    (tmp_path / "finding.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=named):
        messages.load_template("en", tmp_path)


def test_messages_survive_the_outbox():
    message = messages.finding_message(FINDING, AT)
    stored = json.loads(json.dumps(messages.to_json(message)))
    assert messages.from_json(stored) == message


class Remembering:
    name = "remembering"

    def __init__(self):
        self.messages = []

    def send(self, message):
        self.messages.append(message)
        return Delivery(channel=self.name, status="delivered")


def test_heartbeats_are_each_their_own():
    clock, channel = FakeClock(AT), Remembering()
    beat(channel, clock, "one", final_until_at=AT)
    clock.advance(60)
    beat(channel, clock, "one")
    first, second = channel.messages
    assert (first.kind, first.key) == ("heartbeat", "heartbeat:one:2026-03-02T08:00:00+00:00")
    assert first.key != second.key
    assert json.loads(body(first))["fields"]["final_until_at"] == AT.isoformat()
    assert heartbeat_message(AT, language="zh").title == "gpuledger 运行正常"
