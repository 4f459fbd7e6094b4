"""Fakes of schedulers' servers: real HTTP, answers from the published documents. For tests and the demo."""
