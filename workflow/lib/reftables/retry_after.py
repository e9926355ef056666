"""The Retry-After header, in which a server says how long it wants to be left alone."""

import math
from email.utils import parsedate_to_datetime


def retry_after_s(value: str | None, *, now: float) -> float | None:
    """Seconds to wait by a Retry-After header (seconds or an HTTP date); None where it says nothing usable."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):  # a year or an offset that no clock has
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
