"""The `daemon` section: when the background process exits, serves HTTP, reloads and warms up servers.

It lies here and not in `app/daemon`, which reads most of it, because `schema.py` imports nothing above `config`.
"""

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds
from mcpbridge.upstream.settings import REVALIDATE, WARM_UP


class DaemonSettings(BaseModel):
    """The `daemon` section: the process in the background that `mcpbridge serve` on stdio shares with all clients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    idle_exit: Seconds = Field(default=600, ge=0)
    """Seconds without a client after which it ends, if `mcpbridge serve` started it. 0: never."""

    http: str | None = None
    """An address where it serves HTTP as well: `127.0.0.1:8808`."""

    watch: bool = True
    """Whether an edited configuration file takes effect by itself. `mcpbridge reload` does it in any case."""

    warm_up: int = Field(default=WARM_UP, ge=0)
    """Servers that are started in the background at a time, to see whether they still offer what they did. 0: none."""

    revalidate: Seconds = Field(default=REVALIDATE, ge=0)
    """Seconds for which it is believed what a `command` offered last, without starting it to look. What has a `url` is
    looked at whenever the daemon starts."""
