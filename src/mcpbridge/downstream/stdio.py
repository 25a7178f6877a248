"""The stdio front: a conversation on a pair of descriptors, one message a line (spec, stdio transport).

Several clients never share it, so its end is the end of the bridge.
"""

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.core import Core
from mcpbridge.downstream.line_channel import END_GRACE, FLUSH_PATIENCE, LineChannel

__all__ = ["serve_stdio"]


async def serve_stdio(
    core: Core,
    *,
    in_fd: int,
    out_fd: int,
    max_frame: int = 64 << 20,
    view: str = "",
    profile: str = "",
    project: str = "",
    head: bytes = b"",
) -> None:
    """Serve the client on these descriptors until it closes its side. Cancel to end earlier.

    `view`, `profile`, `project`: see `view`, `profile_name` and `told_project` of `Client`. `head`: what was read from
    `in_fd` already.
    """
    client = Client(view=view, profile_name=profile, told_project=project)
    channel = LineChannel(core, client, in_fd=in_fd, out_fd=out_fd, max_frame=max_frame)
    try:
        if head:
            channel.take(head)
        await channel.end()
        await channel.finish(END_GRACE)
    finally:
        channel.close(flush=FLUSH_PATIENCE)
