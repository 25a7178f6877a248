"""How often strangers may ask for what costs something, by the network that they come from: nobody uses it up for all.

The address is that of the client, as trusted proxies say it (`downstream/auth/trusted_proxies.py`). Of IPv6 the first
64 bits count: whoever has one address has all of those.
"""

import ipaddress
from collections import OrderedDict

from mcpbridge.base.token_bucket import Bucket
from mcpbridge.base.units import Rate

_MOST = 10_000
"""Names whose rates are kept; beyond that those go that asked longest ago."""


def network_of(address: str) -> str:
    """What an address counts as; empty for one that is none, such as that of a Unix socket."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False).network_address)
        found = found.ipv4_mapped
    return str(found)


class Rates:
    """The same rate for each of many names."""

    def __init__(self, rate: Rate, most: int = _MOST) -> None:
        self._rate, self._most = rate, most
        self._buckets = OrderedDict[str, Bucket]()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._rate} of {len(self._buckets)}>"

    def take(self, name: str, now: float) -> float:
        """0: it may, and that counts. Else the seconds that it has to wait. `now`: seconds on a steady clock."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self._rate)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        wait = bucket.wait(now)
        if not wait:
            bucket.take(now)
        return wait
