"""From series about cards to whole records: what the exporters of all vendors share.

A vendor says which metric fills which column (`fields`) and what labels are about (`subject`); the rest is the same.
"""
