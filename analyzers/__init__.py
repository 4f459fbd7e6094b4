"""Judgement: rules that turn named queries into findings, recommenders that turn history into guarded proposals."""
