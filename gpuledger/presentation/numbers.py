"""Numbers and times as people read them: with a unit and no idle digit; "-" is no value, "0" was measured."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

NO_VALUE = "-"

_ROUNDING = 1e-9
"""What sums of floating-point numbers may be off by."""

_GPU_HOURS = {"en": "GPU-h", "zh": "卡时"}
_POINTS = {"en": "pp", "zh": "个百分点"}
_DASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"


def is_missing(value: float | None) -> bool:
    """Whether there is no number: None and NaN alike."""
    return value is None or math.isnan(value)


def _digits(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.05:
        return "<0.1"
    return f"{value:,.1f}" if size < 9.95 else f"{value:,.0f}"


def count(value: float | None) -> str:
    """A number of things: "1,213"; one decimal where it is small and not whole."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{value:,.0f}" if abs(value - round(value)) < _ROUNDING else _digits(value)


def amount(value: float | None) -> str:
    """A quantity whose unit stands beside it, in a table's head: "1,234", "3.4", "-" for none."""
    return NO_VALUE if value is None or math.isnan(value) else _digits(value)


def gpu_hours(value: float | None, language: str = "en") -> str:
    """GPU-hours with their unit: "1,234 GPU-h", "3.4 GPU-h", "-" for none."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{_digits(value)} {_GPU_HOURS[language]}"


def money(value: float | None, currency: str) -> str:
    """An amount with its currency: "1,234 CNY", "-" for none. Small ones keep two digits: "0.42 USD"."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{value:,.2f} {currency}" if 0 < abs(value) < 9.995 else f"{value:,.0f} {currency}"


def percent(ratio: float | None) -> str:
    """A ratio of 0 to 1 as "12.3 %". A part that rounds to nothing or to all says so: "<0.1 %", ">99.9 %"."""
    if ratio is None or math.isnan(ratio):
        return NO_VALUE
    if abs(ratio - round(ratio)) < _ROUNDING:
        return f"{ratio * 100:.0f} %"
    if abs(ratio) < 0.0005:
        return "<0.1 %"
    if 0.9995 <= ratio < 1:
        return ">99.9 %"
    return f"{ratio * 100:,.1f} %"


def points(difference: float | None, language: str = "en") -> str:
    """A difference of two ratios in percentage points, signed: "+1.2 pp"; "±0 pp" when it rounds to nothing."""
    if difference is None or math.isnan(difference):
        return NO_VALUE
    rounded = round(difference * 100, 1)
    sign = "+" if rounded > 0 else _MINUS if rounded < 0 else "±"
    size = f"{abs(rounded):.1f}" if rounded else "0"
    return f"{sign}{size} {_POINTS[language]}"


def watts(value: float | None) -> str:
    """Power: "412 W"."""
    return NO_VALUE if value is None or math.isnan(value) else f"{value:,.0f} W"


def duration(hours: float | None, language: str = "en") -> str:
    """A length of time: "5 h 50 min", "3.4 d", "12 min"."""
    if hours is None or math.isnan(hours):
        return NO_VALUE
    day, hour, minute = ("d", "h", "min") if language == "en" else ("天", "小时", "分钟")
    if hours >= 48:
        return f"{hours / 24:,.1f} {day}".replace(".0 ", " ")
    whole, minutes = divmod(round(hours * 60), 60)
    parts = [f"{whole} {hour}"] if whole else []
    parts += [f"{minutes} {minute}"] if minutes or not whole else []
    return " ".join(parts)


def instant(at: datetime | None, timezone: str) -> str:
    """An instant in zone `timezone` without its name: "2026-03-02 14:05"."""
    return NO_VALUE if at is None else at.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M")


def period(from_at: datetime, to_at: datetime, timezone: str) -> str:
    """A period with its zone: whole days as dates (both inclusive), anything else to the minute."""
    zone = ZoneInfo(timezone)
    start, end = from_at.astimezone(zone), to_at.astimezone(zone)
    if (start.hour, start.minute, end.hour, end.minute) == (0, 0, 0, 0):
        last = datetime.fromordinal(end.toordinal() - 1)
        days = f"{start:%Y-%m-%d}" if start.date() == last.date() else f"{start:%Y-%m-%d} {_DASH} {last:%Y-%m-%d}"
        return f"{days} {timezone}"
    return f"{start:%Y-%m-%d %H:%M} {_DASH} {end:%Y-%m-%d %H:%M} {timezone}"
