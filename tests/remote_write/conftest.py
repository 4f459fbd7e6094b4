from __future__ import annotations

from tests.app.conftest import api, clock, make_api, serve, shared

__all__ = ["api", "clock", "make_api", "serve", "shared"]
