"""The meaning of an error answer of a web service that a tool asks. Pure."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from mcpbridge.base.errors import UpstreamGarbled, UpstreamHttpError
from mcpbridge.protocol.http.responses import excerpt, seconds_to_wait
from mcpbridge.sandbox.fetch.fetch import Fetched

_T = TypeVar("_T")


def retry_after(fetched: Fetched) -> float | None:
    """Seconds until the service may be asked again, if it says so."""
    return seconds_to_wait(fetched.headers.get("retry-after", ""), datetime.now(UTC))


def refusal(who: str, fetched: Fetched, section: str, redact: Callable[[str], str]) -> UpstreamHttpError:
    """The error that a status other than 200 is. `section`: of the configuration, where address and key are."""
    status = fetched.status
    if 300 <= status < 400:
        text = f"HTTP {status}: it redirects, which is not followed"
    else:
        said = excerpt(fetched.body, redact)
        text = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    error = UpstreamHttpError(who, status, text, retry_after=retry_after(fetched))
    if status in (401, 403):
        error.advice = f"Do not retry. The service rejects the key: whoever runs the bridge sets `{section}.api_key`."
    elif status == 404 or 300 <= status < 400:
        error.advice = f"Do not retry. Whoever runs the bridge should look at `{section}.url`."
    elif status == 429:
        when = f"in {error.retry_after:g} s" if error.retry_after is not None else "in a minute or later"
        error.advice = f"The service limits how often it is asked. Try again {when}."
    elif 400 <= status < 500:
        error.advice = "Change the arguments; the same call would be refused again."
    elif status != 503:  # which says when by itself
        error.advice = "The fault is at the service. Try again later."  # nothing but reads is asked of a service
    return error


def decoded(who: str, fetched: Fetched, kind: type[_T]) -> _T:
    """The answer as a value.

    Raises:
        UpstreamGarbled: it is none.
    """
    try:
        return msgspec.json.decode(fetched.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        garbled = UpstreamGarbled(who, "its answer is not what the service is known to answer")
        garbled.advice = "Try again later; it may be a fault of the service."
        raise garbled from error
