"""Asking: what is sent, what is tried again, what is refused, and what never shows."""

from __future__ import annotations

import pytest

from collector.prometheus.client import QueryClient, public_url
from gpuledger.errors import ConfigError, SourceError, SourceTimeout
from gpuledger.testing import FakeClock
from tests.collector.prometheus.stub import Stub, error, serving

SECRET = "s3cr3t-t0ken"


def ask(client: QueryClient):
    return client.query_range("last_over_time(m[15s])", 15_000, 45_000, 15_000)


def failing(times: int, status: int, kind: str = "unavailable"):
    """A stub that answers `status` so often before it answers well."""
    left = [times]

    def refuse(window):
        left[0] -= 1
        return (status, error(kind, "later")) if left[0] >= 0 else None

    return Stub({"m": [{"UUID": "GPU-x"}]}, refuse=refuse)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    clock = FakeClock()
    with serving(failing(3, status)) as stub, QueryClient(stub.url, clock=clock) as client:
        assert len(ask(client).values) == 3
    assert len(stub.asked) == 4
    assert len([pause for pause in clock.slept if pause > 0.06]) <= 3


@pytest.mark.parametrize(("status", "kind"), [(400, "bad_data"), (422, "execution"), (401, "x"), (404, "x")])
def test_what_cannot_get_better_is_asked_once(status: int, kind: str) -> None:
    with (
        serving(failing(9, status, kind)) as stub,
        QueryClient(stub.url, clock=FakeClock()) as client,
        pytest.raises(SourceError, match=f"HTTP {status} {kind}: later"),
    ):
        ask(client)
    assert len(stub.asked) == 1


def test_patience_ends() -> None:
    with (
        serving(failing(99, 503)) as stub,
        QueryClient(stub.url, clock=FakeClock(), attempts=3) as client,
        pytest.raises(SourceError, match="HTTP 503 unavailable: later"),
    ):
        ask(client)
    assert len(stub.asked) == 3


def test_a_server_that_is_not_there() -> None:
    clock = FakeClock()
    with (
        QueryClient("http://127.0.0.1:1", clock=clock, attempts=4) as client,
        pytest.raises(SourceError, match="not reachable: connection refused"),
    ):
        ask(client)
    assert len(clock.slept) >= 3


def test_a_name_that_nobody_knows() -> None:
    with (
        QueryClient("http://no-such-host.invalid:9090", clock=FakeClock(), attempts=2) as client,
        pytest.raises(SourceError, match="not reachable: name not known"),
    ):
        ask(client)


def test_a_header_that_cannot_be_sent_is_not_shown_and_not_tried_again() -> None:
    clock, headers = FakeClock(), {"Authorization": f"Bearer {SECRET}\n"}
    with (
        serving(failing(0, 200)) as stub,
        QueryClient(stub.url, clock=clock, headers=headers) as client,
        pytest.raises(SourceError, match="not asked: a header cannot be sent as it is given") as raised,
    ):
        ask(client)
    assert SECRET not in str(raised.value)
    assert (clock.slept, stub.asked) == ([], [])


def test_what_listens_but_is_no_server(serve) -> None:
    from socketserver import StreamRequestHandler  # noqa: PLC0415

    class Hangs(StreamRequestHandler):
        def handle(self) -> None:
            """Hang up."""

    with (
        QueryClient(serve(Hangs), clock=FakeClock(), attempts=2) as client,
        pytest.raises(
            SourceError, match=r"not reachable: (what listens there gave no HTTP answer|connection reset by peer)"
        ),
    ):
        ask(client)


def test_a_server_that_does_not_answer(serve) -> None:
    from http.server import BaseHTTPRequestHandler  # noqa: PLC0415

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.connection.recv(1)  # until the client hangs up

        def log_message(self, *args: object) -> None:
            """Silent."""

    url = serve(Silent)
    with (
        QueryClient(url, clock=FakeClock(), timeout_seconds=0.2, attempts=2) as client,
        pytest.raises(SourceTimeout, match=r"no answer in 0\.2 s"),
    ):
        ask(client)


def test_requests_keep_their_distance() -> None:
    clock = FakeClock()
    with serving(failing(0, 200)) as stub, QueryClient(stub.url, clock=clock, requests_per_second=4) as client:
        for _ in range(5):
            ask(client)
    assert sum(clock.slept) == pytest.approx(1.0)


def test_what_is_sent() -> None:
    with (
        serving(failing(0, 200)) as stub,
        QueryClient(
            f"{stub.url}/prefix/",
            clock=FakeClock(),
            headers={"Authorization": f"Bearer {SECRET}", "X-Scope-OrgID": "a"},
            params={"dedup": "true", "max_source_resolution": "5m"},
        ) as client,
    ):
        ask(client)
        client.names('{__name__=~"m"}', 0, 60_000)
        client.query("vector(1)", 1_500)
    (path, given, headers), (names_path, names_given, _), (query_path, query_given, _) = stub.asked
    assert (path, names_path) == ("/prefix/api/v1/query_range", "/prefix/api/v1/label/__name__/values")
    assert given == {
        "query": "last_over_time(m[15s])", "start": "15", "end": "45", "step": "15",
        "nocache": "1", "dedup": "true", "max_source_resolution": "5m",
    }  # fmt: skip
    assert (headers["authorization"], headers["x-scope-orgid"]) == (f"Bearer {SECRET}", "a")
    assert (names_given["match[]"], names_given["end"]) == ('{__name__=~"m"}', "60")
    assert (query_path, query_given["time"]) == ("/prefix/api/v1/query", "1.500")


def test_basic_authentication_from_the_address_or_apart() -> None:
    with serving(failing(0, 200)) as stub:
        with QueryClient(stub.url, clock=FakeClock(), auth=("me", SECRET)) as client:
            ask(client)
        with QueryClient(stub.url.replace("://", f"://me:{SECRET}@"), clock=FakeClock()) as client:
            ask(client)
            assert SECRET not in client.name
    assert stub.asked[0][2]["authorization"] == stub.asked[1][2]["authorization"]


@pytest.mark.parametrize("times", [0, 99])
def test_errors_never_show_credentials(times: int) -> None:
    with serving(failing(99, 500 if times else 400)) as stub:
        url = stub.url.replace("://", f"://me:{SECRET}@") + f"/?key={SECRET}"
        with (
            QueryClient(url, clock=FakeClock(), headers={"X-Key": SECRET}, attempts=2) as client,
            pytest.raises(SourceError) as raised,
        ):
            ask(client)
    assert SECRET not in f"{raised.value} {raised.value!r}"


def test_addresses() -> None:
    assert public_url("https://me:pw@host:9090/a/?k=v") == "https://host:9090/a"
    assert public_url("http://[::1]:9090") == "http://[::1]:9090"
    one = {public_url(url) for url in ("http://Host", "http://host/", "http://host:80", "HTTP://me:pw@host:80//")}
    assert one == {"http://host"}
    for url in ("", "host:9090", "ftp://host", "http://"):
        with pytest.raises(ConfigError, match="url"):
            QueryClient(url, clock=FakeClock())


def test_more_points_than_a_server_answers_are_a_mistake_of_ours() -> None:
    with QueryClient("http://127.0.0.1:1", clock=FakeClock()) as client, pytest.raises(ValueError, match="points"):
        client.query_range("m", 0, 11_000_000, 1000)
