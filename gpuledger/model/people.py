"""Names of people: who decides, who judges, whose something is."""

from __future__ import annotations

import unicodedata

from gpuledger.errors import BadInput

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Format characters that belong to the spelling of words in some scripts."""


def check_name(field: str, name: str) -> None:
    """Raise BadInput naming `field` where `name` is blank, or holds what nobody sees.

    A control character or a mark that turns the direction of writing can make one name look like another's.
    """
    if not name.strip():
        raise BadInput(field, "must name somebody")
    hidden = next((sign for sign in name if unicodedata.category(sign) in _HIDDEN and sign not in _JOINERS), None)
    if hidden is not None:
        raise BadInput(field, f"holds the invisible character U+{ord(hidden):04X}")
