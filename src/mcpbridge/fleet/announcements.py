"""What has changed at one bridge, said to all others over the link: each looks for itself what there is now.

An announcement has a topic and nothing else, so that one that comes twice does no harm. A bridge that cannot be reached
hears of it as soon as it can. So does one that could not renew its lease, and is a member again within an hour.
"""

import asyncio
from collections.abc import Callable

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown
from mcpbridge.fleet.link.frames import Ask, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import Member

log = get_logger("mcpbridge.fleet")

ANNOUNCE = "ANNOUNCE"
"""In the place of the method of a request."""
_AGAIN_AFTER = 1.0
"""Seconds after which a bridge that could not be reached is tried again."""
_ANSWER_SECONDS = 5.0
_MOST_TOPICS = 1000
"""Topics that one bridge has not heard of; more are not kept for it, unless they are vital."""


class Announcements:
    """Announces to the other members, and hears of them."""

    def __init__(self, members: Members, links: Links, tasks: OwnedTasks) -> None:
        """`tasks` runs what is said."""
        self._members, self._links, self._tasks = members, links, tasks
        self._due: dict[str, dict[str, None]] = {}
        """What each member has not heard of."""
        self.on_heard: Callable[[str], object] = lambda topic: None
        """Called with each topic that another bridge announces."""

    def announce(self, topic: str, *, is_vital: bool = False) -> None:
        """Let all others know. Returns at once.

        `is_vital`: a bridge that cannot be reached hears of it later, however many such topics there are.
        """
        self._tasks.spawn(self._announce(topic, is_vital=is_vital))

    def serve(self, served: Served) -> None:
        """Take what another bridge announces."""
        try:
            self.on_heard(served.head.path)
        except Exception as error:  # it would fail each time that it is announced again
            log.error("what another bridge announced could not be done", exc_info=error)
        served.reply_whole(Reply(204, []), b"")

    async def _announce(self, topic: str, *, is_vital: bool) -> None:
        await self._members.look()  # whoever has just joined may have looked before the change
        me = self._members.me.id
        for id_ in [*(member.id for member in self._members.all()), *self._members.absent()]:
            if id_ == me:
                continue
            due = self._due.get(id_)
            if due is None:
                self._due[id_] = {topic: None}
                self._tasks.spawn(self._send_all(id_))
            elif is_vital or len(due) < _MOST_TOPICS:
                due[topic] = None

    async def _send_all(self, id_: str) -> None:
        due = self._due[id_]
        try:
            while due:
                member = self._members.find(id_)
                if member is None and not self._members.may_return(id_):
                    return
                if member is None or not await self._send_next(member, due):
                    await asyncio.sleep(_AGAIN_AFTER)
        finally:
            del self._due[id_]

    async def _send_next(self, member: Member, due: dict[str, None]) -> bool:
        """Send the first of these. False: it is still due, since the member could not be reached."""
        topic = next(iter(due))
        del due[topic]  # announced once more meanwhile, it is due again
        try:
            await self._send(member.id, member.address, topic)
        except (NotSent, OutcomeUnknown, TimeoutError):
            due[topic] = None
            return False
        return True

    async def _send(self, id_: str, address: str, topic: str) -> None:
        stream = await self._links.ask(id_, address, Ask(ANNOUNCE, topic, b"", [], "", 0), b"")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await stream.head()
        finally:
            stream.close()
