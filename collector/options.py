"""Checks the options of a `[[source]]` table by what its maker says it takes, before anything is made of them."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Unpack, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from collector.settings import PageUrl

SHARED = "client"
"""What the agent gives by itself to the sources that take it; it cannot be set."""

_Name = Annotated[str, Field(max_length=253)]
COMMON: Mapping[str, Any] = {
    "url": PageUrl,
    "node": Annotated[str, Field(min_length=1, max_length=253)],
    "cluster": Annotated[str, Field(min_length=1, max_length=253)],
    "namespace": _Name,
    "pod": _Name,
    "workload_id": _Name,
    "interval_seconds": Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)],
    "timeout_seconds": Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)],
    "drop_labels": list[str],
}
"""What these options are in every source of our own, more closely than a signature can say."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a maker takes: each option's type (Any: not said), those it must be given, and whether any other will do."""

    types: Mapping[str, Any]
    required: frozenset[str]
    takes_others: bool


def taken_by(maker: Callable[..., Any]) -> Taken:
    """What `maker` says of its options; `**options: Unpack[...]` of a TypedDict stands for that one's keys."""
    hints = _hints(maker.__init__ if inspect.isclass(maker) else maker)
    types: dict[str, Any] = {}
    required, takes_others = set(), False
    for name, parameter in inspect.signature(maker).parameters.items():
        hint = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            inner = get_args(hint)[0] if get_origin(hint) is Unpack else None
            takes_others = not is_typeddict(inner)
            types |= {} if takes_others else _hints(inner)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            types[name] = hint
            required |= {name} if parameter.default is parameter.empty else set()
    return Taken(types, frozenset(required), takes_others)


def mistake(options: Mapping[str, Any], taken: Taken, *, is_own: bool) -> str | None:
    """The first thing that is wrong with `options`, as "option: reason", or None.

    `is_own`: the source is one of ours, where the options in `COMMON` mean what they say there.
    """
    known = sorted(set(taken.types) - {SHARED})
    for name, value in options.items():
        if name not in known and not (taken.takes_others and name != SHARED):
            close = difflib.get_close_matches(name, known, 1)
            return f"{name}: no such option; " + (
                f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            )
        hint = COMMON[name] if is_own and name in COMMON else taken.types.get(name, Any)
        if (reason := _reason(hint, value)) is not None:
            return f"{name}{reason}"
    missing = sorted(taken.required - set(options) - {SHARED})
    return f"{missing[0]}: must be given" if missing else None


def _hints(of: Any) -> dict[str, Any]:
    try:
        return get_type_hints(of, include_extras=True)
    except (NameError, TypeError, AttributeError):  # a plug-in may import for its type checker alone
        return {}


def _reason(hint: Any, value: Any) -> str | None:
    """Why `value` is no `hint`, or None. Read as JSON, where a number is no text but a path is; dates as they are."""
    if get_origin(hint) is Iterable:  # pydantic would look at its items only when somebody asks for them
        hint = list[get_args(hint)]  # type: ignore[misc]
    try:
        adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, NameError):  # the type brings a configuration of its own, or is none that can be checked
        return None
    try:
        try:
            text = json.dumps(value)
        except TypeError:
            adapter.validate_python(value, strict=True)
        else:
            adapter.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        # Within an option only keys and numbers are places; the arms of a union are pydantic's own names.
        inside = first["loc"] if isinstance(value, list | dict) and len(error.errors()) == 1 else ()
        return "".join(f".{part}" for part in inside) + f": {first['msg'].removeprefix('Value error, ')}"
    return None
