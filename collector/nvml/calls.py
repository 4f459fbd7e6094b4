"""NVML calls that may fail one by one: what is missing is remembered, what is lost costs one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pynvml

Answer = TypeVar("Answer")

_UNSUPPORTED = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
_LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND})
_RESTART = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        # The library stays mapped after a driver upgrade and answers this for ever; only a new process helps.
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class DeviceLostError(Exception):
    """The device fell off the bus or needs a reset; the others are fine."""


class RestartNeededError(Exception):
    """The library is of no further use in this process."""


def give_up_if_useless(error: pynvml.NVMLError) -> None:
    """Raise RestartNeededError when `error` says that no later call in this process can succeed."""
    if error.value in _RESTART:
        raise RestartNeededError(text_of(error)) from error


def text_of(error: Exception) -> str:
    """What to say of `error`. The library's own text of an unknown code may itself be unreadable."""
    code = f"NVML {error.value}" if isinstance(error, pynvml.NVMLError) else type(error).__name__
    try:
        return f"{error} ({code})"
    except Exception:  # the text is the library's own, and it may be garbage: the code says enough
        return code


def is_lost(code: int) -> bool:
    """Whether a return code says that the device is gone or needs a reset."""
    return code in _LOST


def is_unsupported(code: int) -> bool:
    """Whether a return code says that device or driver do not offer what was asked."""
    return code in _UNSUPPORTED


class DeviceCalls:
    """Asks one device. `is_partial` says whether some answer of the current pass was lost to a passing fault.

    A call that the device or driver does not offer is asked once and then left alone, until `forget`.
    """

    def __init__(self) -> None:
        self._unsupported: set[str] = set()
        self.is_partial = False

    def forget(self) -> None:
        """Ask everything again: what the device offers may have changed."""
        self._unsupported.clear()

    def ask(self, name: str, call: Callable[..., Answer], *arguments: object) -> Answer | None:
        """The answer of `call`, remembered as `name`, or None when there is none.

        Raises DeviceLostError and RestartNeededError.
        """
        if name in self._unsupported:
            return None
        try:
            return call(*arguments)
        except pynvml.NVMLError as error:
            give_up_if_useless(error)
            if error.value in _LOST:
                raise DeviceLostError(text_of(error)) from error
            if error.value in _UNSUPPORTED:
                self._unsupported.add(name)
            elif error.value != pynvml.NVML_ERROR_NO_PERMISSION:
                self.is_partial = True
        except Exception:  # what the library gave cannot be understood: texts that are none, sizes beyond memory
            self.is_partial = True
        return None
