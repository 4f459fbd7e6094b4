"""What keeps the agent small: it runs on every node, beside work that wants the memory."""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any

import pyarrow as pa


class _NoPandas(importlib.abc.MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def arrow_without_pandas() -> None:
    """Let Arrow find no pandas, which it looks for once, at its first array, and never uses for what we give it.

    Where pandas is installed that costs 50 MB. Others in this process can import it as before.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
