"""A server of the query API that holds a few series of one sample a step, and refuses what Prometheus refuses."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

MAX_POINTS = 11_000
SURVEYS = "count"
"""How the range queries begin by which a server is looked at."""
AnyStub = TypeVar("AnyStub", bound="Stub")
Range = tuple[float, float, float]
Reply = tuple[int, bytes]


def matrix(series: Iterable[tuple[Mapping[str, str], Sequence[tuple[float, str]]]], **more: object) -> bytes:
    """A range query's answer as servers write it: no blanks."""
    result = [{"metric": dict(labels), "values": [list(value) for value in values]} for labels, values in series]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}
    return json.dumps(document, separators=(",", ":")).encode()


def error(kind: str, text: str) -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


@dataclass
class Stub:
    """`series` maps a metric to its labels; each has the value `value(instant)` at every instant asked for.

    `refuse` may answer a range query in its stead, by its times, but not the counts of a survey. `asked` holds
    (path, parameters, headers).
    """

    series: Mapping[str, Sequence[Mapping[str, str]]]
    value: Callable[[float], float] = lambda at: at % 100
    refuse: Callable[[Range], Reply | None] = lambda _: None
    extra: dict[str, object] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    interval_seconds: float = 15
    config: str = ""
    begins_at: float = 0.0
    url: str = ""

    def answer(self, path: str, params: dict[str, str]) -> Reply:
        if path.endswith("/label/__name__/values"):
            return 200, json.dumps({"status": "success", "data": list(self.series)}).encode()
        if path.endswith("/query"):
            return 200, self._instant(params["query"], float(params["time"]))
        if path.endswith("/status/config"):
            return 200, json.dumps({"status": "success", "data": {"yaml": self.config}}).encode()
        start, end, step = (float(params[name]) for name in ("start", "end", "step"))
        if (end - start) / step > MAX_POINTS:
            text = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"
            return 400, error("bad_data", text)
        refused = None if params["query"].startswith(SURVEYS) else self.refuse((start, end, step))
        return refused or (200, self._range(params["query"], start, end, step))

    def _range(self, query: str, start: float, end: float, step: float) -> bytes:
        instants = [start + step * number for number in range(int((end - start) // step) + 1)]
        if "count by (__name__)" in query:
            counted = [
                ({"__name__": name}, [(at, str(len(kept))) for at in instants]) for name, kept in self.series.items()
            ]
            return matrix(counted)
        found = re.search(r"_over_time\(([A-Za-z_:0-9]+)", query)
        held = self.series.get(found[1], []) if found else []
        return matrix(
            [(labels, [(at, f"{self.value(at - step):g}") for at in instants]) for labels in held], **self.extra
        )

    def _instant(self, query: str, at: float) -> bytes:
        """Which series has most samples, and the samples of one."""
        held = next(([(name, labels) for labels in kept] for name, kept in self.series.items() if name in query), [])
        name, labels = held[0] if held else ("", {})
        if query.startswith("topk(1, count_over_time(") and held:
            vector = {"resultType": "vector", "result": [{"metric": labels, "value": [at, "1"]}]}
            return json.dumps({"status": "success", "data": vector}).encode()
        if found := re.fullmatch(re.escape(name) + r".*\[(\d+)s\]", query) if name else None:
            every, begin = self.interval_seconds, max(at - int(found[1]), self.begins_at)
            count = int((at - begin) // every)
            return matrix([(labels, [(at - every * back, "1") for back in reversed(range(count))])])
        return b'{"status":"success","data":{"resultType":"vector","result":[]}}'

    def ranges(self) -> list[Range]:
        """The windows of the range queries that brought readings."""
        return [
            (float(given["start"]), float(given["end"]), float(given["step"]))
            for path, given, _ in self.asked
            if path.endswith("/query_range") and "last_over_time" in given["query"]
        ]


Stored = tuple[str, Mapping[str, str], list[tuple[float, str]]]
"""(metric, labels, samples as (second, value))."""


class Store(Stub):
    """A stub that holds samples at instants of their own, and answers the last one of each step."""

    def __init__(self, stored: list[Stored]) -> None:
        names: dict[str, list[Mapping[str, str]]] = {}
        for name, labels, _ in stored:
            names.setdefault(name, []).append(labels)
        super().__init__(names, interval_seconds=60)
        self._stored = stored

    def _range(self, query: str, start: float, end: float, step: float) -> bytes:
        if "last_over_time" not in query:
            return super()._range(query, start, end, step)
        metric = re.findall(r"_over_time\(([A-Za-z_:0-9]+)", query)[0]
        found = []
        for name, labels, samples in self._stored:
            last = {
                at // step * step + step: value for at, value in samples if start <= at // step * step + step <= end
            }
            if name == metric and last:
                found.append((labels, list(last.items())))
        return matrix(found, **self.extra)


@contextlib.contextmanager
def serving(stub: AnyStub) -> Iterator[AnyStub]:
    """`stub` over HTTP on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            params = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            stub.asked.append((parts.path, params, {name.lower(): text for name, text in self.headers.items()}))
            status, body = stub.answer(parts.path, params)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
