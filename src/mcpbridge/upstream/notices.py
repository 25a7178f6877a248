"""What a server tells by itself, outside of any request's stream, and whom it concerns.

What belongs to a request goes there by its id already in `wire.peer`; this is the rest.
"""

from collections.abc import Callable

from msgspec import Raw

from mcpbridge.logs import get_logger
from mcpbridge.upstream.attribution import Attribution
from mcpbridge.upstream.listings import Listings
from mcpbridge.upstream.tasks import TaskBook

__all__ = ["Notices"]

log = get_logger("mcpbridge.upstream")

Told = Callable[[Raw], None]
"""Gets the params of a notification."""


class Notices:
    """Takes the notifications of one instance; `heard` is its peer's `on_notification`."""

    def __init__(
        self,
        name: str,
        attribution: Attribution,
        listings: Listings,
        tasks: TaskBook,
        *,
        resource_updated: Told,
        logged: Told,
        elicitation_completed: Told,
    ) -> None:
        """`logged` gets what is of no call; the others are of the whole server by their nature."""
        self._name, self._attribution, self._listings, self._tasks = name, attribution, listings, tasks
        self._resource_updated, self._logged = resource_updated, logged
        self._elicitation_completed = elicitation_completed

    def heard(self, method: str, params: Raw, via: bytes) -> None:
        """Take a notification to whom it concerns."""
        match method:
            case "notifications/tools/list_changed":
                self._listings.mark_stale("tools")
            case "notifications/prompts/list_changed":
                self._listings.mark_stale("prompts")
            case "notifications/resources/list_changed":
                self._listings.mark_stale("resources", "templates")
            case "notifications/resources/updated":
                self._resource_updated(params)
            case "notifications/message":
                self._log_message(params)
            case "notifications/tasks/status":
                self._tasks.changed(params)
            case "notifications/progress":
                self._tasks.progressed(params)
            case "notifications/elicitation/complete":
                self._elicitation_completed(params)
            case "notifications/subscriptions/acknowledged":
                self._listings.acknowledged(params)
            case _:
                log.debug("notification ignored", upstream=self._name, method=method[:100])

    def _log_message(self, params: Raw) -> None:
        """To the call that it can only be of; to the server's listeners, if it can be of none that was given up."""
        if self._attribution.may_be_stray:
            return
        if call := self._attribution.only_one:
            call.update("notifications/message", params)
        else:
            self._logged(params)
