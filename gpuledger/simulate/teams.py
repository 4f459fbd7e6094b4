"""The organisation: divisions and teams, each team with one queue of the same name, all queues in one cohort."""

from __future__ import annotations

from typing import NamedTuple

COHORT = "all-gpus"
SCHEDULER = "kueue"


class Team(NamedTuple):
    """A team (`name` is tenant and queue), its division and how people call it."""

    name: str
    division: str
    display_name: str


DIVISIONS = {
    "foundation": "基础模型部",
    "search": "搜索推荐部",
    "research": "研究院",
    "platform": "AI Platform",
}

PRETRAIN = "foundation-pretrain"
POSTTRAIN = "foundation-posttrain"
RANKING = "search-ranking"
ASSISTANT = "search-assistant"
UNDERUSED = "research-vision"
BLOCKED = "research-speech"
NOTEBOOKS = "platform-dev"
EVALUATION = "platform-eval"

TEAMS = (
    Team(PRETRAIN, "foundation", "预训练组"),
    Team(POSTTRAIN, "foundation", "后训练组"),
    Team(RANKING, "search", "推荐排序组"),
    Team(ASSISTANT, "search", "智能助手组"),
    Team(UNDERUSED, "research", "视觉实验室"),
    Team(BLOCKED, "research", "语音组"),
    Team(NOTEBOOKS, "platform", "Developer notebooks"),
    Team(EVALUATION, "platform", "Evaluation"),
)
