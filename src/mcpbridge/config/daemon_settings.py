"""The `daemon` section: when the background process exits, serves HTTP, reloads and warms up servers.

It lies here and not in `app/daemon`, which reads most of it, because `schema.py` imports nothing above `config`.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds
from mcpbridge.upstream.settings import REVALIDATE, WARM_UP


class DaemonSettings(BaseModel):
    """The `daemon` section: the background process that all clients of `mcpbridge serve` on stdio share."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    idle_exit: Seconds = Field(default=600, ge=0)
    """Seconds without a client after which the daemon exits, if `mcpbridge serve` started it. 0: never."""

    http: str | None = None
    """An address where the daemon also serves HTTP, such as `127.0.0.1:8808`."""

    watch: bool = True
    """Whether the daemon reloads an edited configuration file by itself. `mcpbridge reload` always does."""

    snapshot: bool = True
    """Whether the daemon keeps what clients are answered first, so that they need not wait for the next one to start.
    `MCPBRIDGE_SNAPSHOT=0` turns that off for one client."""

    warm_up: int = Field(default=WARM_UP, ge=0)
    """Servers that the daemon starts in the background at a time, to refresh their known lists. 0: none."""

    revalidate: Seconds = Field(default=REVALIDATE, ge=0)
    """Seconds for which the known list of a `command` server is used without starting the server to refresh it. The
    list of a `url` server is refreshed at each start of the daemon."""
