"""Which addresses a server may send us to: those of its own origin (scheme, host and port).

Redirects and addresses in answers are followed there only, so that no credential reaches another origin.
"""

import httpx2

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether scheme, host and port agree; a default port may be left out."""
    return _origin(one) == _origin(other)


def redirect_target(response: httpx2.Response, statuses: frozenset[int]) -> httpx2.URL | None:
    """Where a redirect with one of these statuses leads, if it stays on the origin; else None."""
    location = response.headers.get("location", "")
    if response.status_code not in statuses or not location:
        return None
    here = response.request.url
    try:
        target = here.join(location)
    except httpx2.InvalidURL:
        return None
    return target if is_same_origin(target, here) else None


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, _PORTS.get(url.scheme) if url.port is None else url.port
