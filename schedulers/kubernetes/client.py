"""Asks a Kubernetes API server; lightkube finds it, proves who we are, and carries.

Answers stay plain mappings: typed objects of 20,000 pods take several times the time and memory of the thinned ones.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import yaml
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError
from pydantic_core import from_json
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from gpuledger.errors import ConfigError, NotPermitted, SchedulerError, SchedulerUnreachable
from schedulers.kubernetes.options import KubernetesOptions

ATTEMPTS = 4
"""How often one question is asked, where the server did not answer or asked for patience."""

_BUSY = frozenset({429, 500, 502, 503, 504})


class Refused(SchedulerError):
    """The server answered no: `status` is HTTP's, `answer` its own words."""

    def __init__(self, place: str, status: int, answer: str) -> None:
        super().__init__(f"{place}: {status} {answer}")
        self.status = status
        self.answer = answer


def _config(options: KubernetesOptions) -> SingleConfig:
    if options.url:
        cluster = Cluster(server=options.url, certificate_auth=_absolute(options.ca_file))
        user = User(token_file=_absolute(options.token_file))
        return _found(KubeConfig.from_one(cluster=cluster, user=user).get())
    try:
        if options.kubeconfig or options.context:
            path = options.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")
            found = KubeConfig.from_file(path).get(options.context)
        else:
            found = KubeConfig.from_env().get()
    except KeyError as error:
        raise ConfigError(f"kubeconfig: has no {error}") from error
    except yaml.YAMLError:
        raise ConfigError("kubeconfig: is no YAML") from None
    except (LightkubeConfigError, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"kubeconfig: {error}") from error
    return _found(found)


def _files(config: SingleConfig) -> str:
    """The files of certificates and keys that a connection takes, for errors that do not name theirs."""
    user = config.user or User()
    named = (config.cluster.certificate_auth, user.client_cert, user.client_key)
    return ", ".join(str(config.abs_file(one)) for one in named if one) or "its certificates"


def _found(config: SingleConfig | None) -> SingleConfig:
    if config is None:
        raise ConfigError("kubeconfig: names no context")
    return config._replace(user=config.user or User())


def _absolute(path: Path | None) -> str | None:
    return str(path.expanduser().absolute()) if path else None


class Api:
    """One API server, as long as the block lasts. Safe for threads, as its session is."""

    def __init__(self, session: httpx2.Client, options: KubernetesOptions, namespace: str = "default") -> None:
        self._session = session
        self._options = options
        self.namespace = namespace
        self.url = str(session.base_url).rstrip("/")

    @classmethod
    def connect(cls, options: KubernetesOptions) -> Self:
        """A session as `options` say; nothing is asked yet. Raises ConfigError where they lead nowhere."""
        config = _config(options)
        timeout = httpx2.Timeout(options.timeout_seconds)
        try:
            session = Client(config, ConnectionParams(timeout=timeout, trust_env=False))
        except (LightkubeConfigError, OSError, ValueError) as error:
            raise ConfigError(f"Kubernetes at {config.cluster.server}: {_files(config)}: {error}") from error
        return cls(session, options, config.namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()

    def get(self, path: str, sleep: Callable[[float], None], /, **parameters: str | int) -> Any:
        """The JSON at `path`.

        Asked again with growing pauses where the server does not answer or is busy. Raises Refused for an answer of 4xx
        or 501, NotPermitted where it does not know us, SchedulerUnreachable for the rest.
        """
        again = Retrying(
            retry=retry_if_exception_type(SchedulerUnreachable),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(0.2, max=5),
            sleep=sleep,
            reraise=True,
        )
        return again(self._get, path, parameters)

    def _get(self, path: str, parameters: Mapping[str, str | int]) -> Any:
        place = f"{self.url}{path}"
        try:
            response = self._session.get(path, params=parameters)
        except httpx2.LocalProtocolError:
            # Its text holds what was to be sent: the token.
            raise ConfigError(f"{place}: the token is empty, or holds what no header may have") from None
        except (httpx2.HTTPError, OSError) as error:
            raise SchedulerUnreachable(f"{place}: {type(error).__name__}: {error}") from error
        except LightkubeConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"{place}: the credentials cannot be read: {type(error).__name__}") from None
        _check(place, response)
        return _decoded(place, response.content)

    @contextmanager
    def lines(self, path: str, *, quiet_seconds: float, **parameters: str | int) -> Iterator[Lines]:
        """The JSON documents that the server streams at `path`; it may be silent for `quiet_seconds`."""
        place = f"{self.url}{path}"
        timeout = httpx2.Timeout(self._options.timeout_seconds, read=quiet_seconds)
        try:
            with self._session.stream("GET", path, params=parameters, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    _check(place, response)
                yield Lines(place, response)
        except httpx2.LocalProtocolError:
            raise ConfigError(f"{place}: the token is empty, or holds what no header may have") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise SchedulerUnreachable(f"{place}: {type(error).__name__}: {error}") from error


class Lines:
    """A stream of documents that another thread may cut."""

    def __init__(self, place: str, response: httpx2.Response) -> None:
        self._place = place
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._response.iter_lines():
            if line:
                yield _decoded(self._place, line)

    def cut(self) -> None:
        """Wake whoever waits for the next document: there is none."""
        stream = self._response.extensions.get("network_stream")
        wire = stream.get_extra_info("socket") if stream else None
        if wire is not None:
            try:
                wire.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def _check(place: str, response: httpx2.Response) -> None:
    status = response.status_code
    if status < 300:
        return
    answer = _message(response)
    if status == 401:
        raise NotPermitted(f"{place}: 401 {answer}")
    if status in _BUSY or status < 400:
        raise SchedulerUnreachable(f"{place}: {status} {answer}")
    raise Refused(place, status, answer)


def _message(response: httpx2.Response) -> str:
    """The server's own words: a Status has them in `message`."""
    try:
        found = from_json(response.content)
    except ValueError:
        found = None
    text = found.get("message") if isinstance(found, dict) else None
    return str(text or response.text or response.reason_phrase)[:500]


def _decoded(place: str, content: bytes | str) -> dict[str, Any]:
    try:
        found = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise SchedulerUnreachable(f"{place}: no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SchedulerUnreachable(f"{place}: no API server answers so: {str(found)[:80]!r}")
    return found
