"""Lists and single reads, at one version: pages, continue tokens, `resourceVersion` and how it is to be matched."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.resources import Resource
from schedulers.fakes.apiserver.selectors import Selector
from schedulers.fakes.apiserver.statuses import ApiRefusal, invalid, not_found, too_new
from schedulers.fakes.apiserver.store import Store, encoded
from schedulers.fakes.apiserver.versions import Key, Version

_EXPIRED_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_NO_LONGER = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list stands: the version that it is of (-1: whichever is current), and the last key that was given."""

    version: int
    after: Key | None = None

    @property
    def token(self) -> str:
        """The `continue` token, opaque to clients."""
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": self.version, "start": "/".join(self.after or ("", ""))})
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def of_token(cls, token: str) -> Place:
        """Read a token. Raises ApiRefusal (400)."""
        try:
            parts = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            namespace, _, name = str(parts["start"]).partition("/")
            return cls(int(parts["rv"]), (namespace, name))
        except (binascii.Error, ValueError, LookupError, TypeError) as error:
            raise ApiRefusal(400, f"continue key is not valid: {error}") from None


def head(resource: Resource, version: str) -> bytes:
    """How the JSON of an object of this kind begins."""
    return encoded({"apiVersion": resource.api_version(version), "kind": resource.kind})[:-1] + b","


def body(resource: Resource, version: str, found: Version) -> bytes:
    """An object's whole JSON in a served version."""
    return head(resource, version) + (found.tail or b"}")


def get_bytes(store: Store, resource: Resource, asked: Asked) -> bytes:
    """Answer a get. Raises ApiRefusal (404)."""
    with store.lock:
        found = store.table(resource).get((asked.namespace, asked.name))
    if found is None:
        raise not_found(resource.group, resource.plural, asked.name)
    return body(resource, asked.version, found)


def list_bytes(store: Store, resource: Resource, asked: Asked) -> bytes:
    """Answer a list, or a page of it. Raises ApiRefusal (400, 410, 422, 504)."""
    selector = Selector.parse(asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""), resource.key)
    limit = asked.number("limit") or None
    with store.lock:
        place = _place(store, asked)
        found = _selected(store, resource, asked, place, selector)
        page = list(found if limit is None else islice(found, limit))
        goes_on = limit is not None and len(page) == limit and next(found, None) is not None
        rest = store.table(resource).count_after(page[-1][0], asked.namespace) if goes_on else 0
    metadata: dict[str, object] = {"resourceVersion": str(place.version)}
    if goes_on:
        metadata["continue"] = Place(place.version, page[-1][0]).token
        if selector.is_empty:  # else the API does not say how many follow
            metadata["remainingItemCount"] = rest
    beginning = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version(asked.version),
        "metadata": metadata,
    }
    # Items of a built-in list carry neither kind nor apiVersion; those of a custom one do.
    each_head = head(resource, asked.version) if resource.is_custom else b"{"
    parts = [encoded(beginning)[:-1], b',"items":[']
    separator = b""
    for _, version in page:
        parts += (separator, each_head, version.tail or b"}")
        separator = b","
    parts.append(b"]}\n")
    return b"".join(parts)


def _selected(
    store: Store, resource: Resource, asked: Asked, place: Place, selector: Selector
) -> Iterator[tuple[Key, Version]]:
    found = store.table(resource).at(place.version, place.after, asked.namespace)
    if selector.is_empty:
        return found
    return (each for each in found if selector.matches(each[0], each[1].labels, each[1].fields))


def _place(store: Store, asked: Asked) -> Place:
    """The version that a list is of, by the API's table of parameters."""
    match, text = asked.query.get("resourceVersionMatch", ""), asked.query.get("resourceVersion", "")
    if token := asked.query.get("continue", ""):
        if match:
            raise _options("resourceVersionMatch", "resourceVersionMatch is forbidden for continue")
        if text not in {"", "0"}:
            raise ApiRefusal(400, "specifying resource version is not allowed when using continue")
        return _continued(store, Place.of_token(token))
    _check_match(match, text)
    wanted = asked.number("resourceVersion") or 0
    if wanted > store.version:
        raise too_new(wanted, store.version)
    is_exact = match == "Exact" or (not match and wanted and asked.number("limit"))
    if not is_exact:
        return Place(store.version)
    if wanted < store.floor:
        raise ApiRefusal(410, _NO_LONGER)
    return Place(wanted)


def _continued(store: Store, place: Place) -> Place:
    if place.version == -1:
        return Place(store.version, place.after)
    if place.version < store.floor:
        raise ApiRefusal(410, _EXPIRED_PAGE, token=Place(-1, place.after).token)
    return place


def _check_match(match: str, text: str) -> None:
    if match and not text:
        raise _options("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match not in {"", "Exact", "NotOlderThan"}:
        supported = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        raise invalid("meta.k8s.io", "ListOptions", "", [("FieldValueNotSupported", "resourceVersionMatch", supported)])
    if match == "Exact" and text == "0":
        raise _options("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def _options(field: str, message: str) -> ApiRefusal:
    return invalid("meta.k8s.io", "ListOptions", "", [("FieldValueForbidden", field, f"Forbidden: {message}")])
