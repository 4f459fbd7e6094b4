"""Reads what somebody wrote as an adapter's options: what is wrong is named, never its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpuledger.errors import ConfigError

OptionsType = TypeVar("OptionsType", bound=BaseModel)

_WRITTEN = {
    "tuple_type": 'must be a list: ["a", "b"]',
    "list_type": 'must be a list: ["a", "b"]',
    "mapping_type": 'must be a table: {a = 1}; on the command line JSON: {"a": 1}',
    "dict_type": 'must be a table: {a = 1}; on the command line JSON: {"a": 1}',
    "missing": "is not given and must be",
}


def _address(url: str) -> str:
    """`url` without a slash at its end. Raises ValueError for what is no address, or holds a secret."""
    try:
        told = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("is no address") from None
    if told.scheme not in ("http", "https") or not told.host:
        raise ValueError("is no address that begins with http:// or https://")
    if told.userinfo or told.query:
        raise ValueError("holds a user, a password or a query; they have options of their own")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]
"""Where a server is: an http(s) address that may be told in errors and logs."""


def parsed(cls: type[OptionsType], adapter: str, given: Mapping[str, Any]) -> OptionsType:
    """`given` as options of class `cls`. Raises ConfigError naming the adapter and the wrong option, not its value."""
    try:
        return cls.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(f"scheduler {adapter}: {wrong_in(cls, error)}") from None


def wrong_in(cls: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with a table for `cls`, each thing by its name and without its value."""
    return "; ".join(_said(cls, one) for one in error.errors(include_url=False, include_input=False))


def _said(cls: type[BaseModel], error: ErrorDetails) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{place[:40]}: there is no such key; known: {', '.join(sorted(cls.model_fields))}"
    text = _WRITTEN.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text
