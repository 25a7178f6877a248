"""Which client gets which notification: legacy sessions directly, modern clients on their listen streams.

MCP 2026-07-28, `subscriptions/listen`: the acknowledgement comes first, every message has the stream's id, and
nothing is sent that was not asked for. Such a notification says "look again", so a repeated one may be dropped. Who
may subscribe, and to how much, is decided in `subscriptions.py`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Raw, Struct, field

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.progress import log_notification
from mcpbridge.protocol.jsonrpc import Fields, decode_fields, encode, encode_fields, encode_notification
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.protocol.meta import SUBSCRIPTION_ID

_LISTS = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class _Filter(msgspec.Struct, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


_decode_filter = msgspec.json.Decoder(_Filter).decode


class Listen(Struct, eq=False):
    """One open listen stream."""

    id: bytes
    notify: Notify
    lists: frozenset[str]
    uris: frozenset[str]
    """In the client's spelling."""
    tasks: frozenset[str] = frozenset()
    """Ids of tasks, as the client names them."""
    view: str = ""
    """See `Client.view`."""
    client: Client | None = None
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @classmethod
    def read(cls, id_: bytes, params: Fields, notify: Notify) -> "Listen":
        """From the request's params. Raises msgspec.DecodeError or KeyError when they have the wrong shape."""
        wanted = _decode_filter(params["notifications"])
        lists = frozenset(kind for kind in _LISTS if getattr(wanted, f"{kind}_list_changed"))
        uris, tasks = frozenset(wanted.resource_subscriptions or ()), frozenset(wanted.task_ids or ())
        return cls(id_, notify, lists, uris, tasks)

    def acknowledge(self, honoured: list[str], tasks: list[str] | None = None) -> None:
        """The first message on the stream: what will be delivered.

        `honoured` are the URIs that can be watched, `tasks` those whose server reports them.
        """
        self.uris = frozenset(honoured)
        filter_: dict[str, object] = {_LISTS[kind]: True for kind in sorted(self.lists)}
        if honoured:
            filter_["resourceSubscriptions"] = honoured
        if tasks:
            filter_["taskIds"] = tasks
        self.send("notifications/subscriptions/acknowledged", {"notifications": Raw(encode(filter_))})

    def send(self, method: str, fields: Fields) -> None:
        """A message on this stream, stamped with its id."""
        stamp: Fields = {**_meta_of(fields), SUBSCRIPTION_ID: Raw(self.id)}
        self.notify(encode_notification(method, encode_fields({**fields, "_meta": Raw(encode_fields(stamp))})))

    def end(self) -> None:
        """End the stream in good order."""
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def result(self) -> bytes:
        """What ends the stream in good order."""
        return b'{"resultType":"complete","_meta":{"%b":%b}}' % (SUBSCRIPTION_ID.encode(), self.id)


_REDACT = Redactor()


class Listeners:
    """All open clients and listen streams of one bridge."""

    def __init__(self, redact: Callable[[str], str] = _REDACT) -> None:
        """`redact` masks secrets in log messages of servers."""
        self._redact = redact
        self.clients: set[Client] = set()
        self.listens: set[Listen] = set()
        """See `add`."""
        self._are_over = False

    @property
    def have_lists(self) -> bool:
        """Somebody listens for changes of a list, so may know one that it has from before this bridge was started."""
        return any(listen.lists for listen in self.listens)

    @property
    def log_level(self) -> str:
        """The least severe level that any session wants; empty when none asked.

        A session that set none leaves it to the servers: as soon as another one sets a level, they are to send all
        that they would have sent this one.
        """
        levels = [client.log_level for client in self.clients]
        if not any(levels):
            return ""
        return LEVELS[0] if "" in levels else min(levels, key=LEVELS.index)

    def list_changed(self, kind: str, view: str = "", concerns: Callable[[Client], bool] = lambda _: True) -> None:
        """The list of `tools`, `prompts` or `resources` that this view shows is another one now.

        `concerns` leaves out clients that see the same as before.
        """
        method = f"notifications/{kind}/list_changed"
        message = encode_notification(method)
        for client in list(self.clients):
            if client.initialized and client.view == view and concerns(client):
                client.push(message)
        for listen in list(self.listens):
            if kind in listen.lists and listen.view == view and (listen.client is None or concerns(listen.client)):
                listen.send(method, {})

    def everyone(self) -> Iterator[tuple["Client | Listen", Client]]:
        """Who may be notified that a list changed, with the client whose list that is."""
        yield from [(client, client) for client in self.clients if client.initialized]
        yield from [(listen, listen.client) for listen in self.listens if listen.client is not None]

    def tell(self, listener: "Client | Listen", lists: Iterable[str]) -> None:
        """These lists of `tools`, `prompts` or `resources` are others now, for one who may be notified."""
        for kind in sorted(lists):
            method = f"notifications/{kind}/list_changed"
            if isinstance(listener, Client):
                listener.push(encode_notification(method))
            elif kind in listener.lists:
                listener.send(method, {})

    def resource_updated(
        self,
        params: Raw,
        published: str,
        is_meant: Callable[[str, str], bool],
        view: str = "",
        concerns: Callable[[Client], bool] = lambda _: True,
    ) -> None:
        """A resource changed; `published` is its URI in this view. `is_meant(subscribed, uri)` decides who hears it.

        `concerns` leaves out clients whose server is another instance.
        """
        method = "notifications/resources/updated"
        fields = decode_fields(params)
        fields["uri"] = Raw(encode(published))
        meta = _meta_of(fields)  # vendors' keys are for both ends; the stream's id is that of our own stream up there
        fields.pop("_meta", None)
        if meta:
            fields["_meta"] = Raw(encode_fields(meta))
        message = encode_notification(method, encode_fields(fields))
        for client in list(self.clients):
            is_subscribed = client.view == view and any(is_meant(uri, published) for uri in client.subscriptions)
            if is_subscribed and concerns(client):
                client.push(message)
        for listen in list(self.listens):
            is_subscribed = listen.view == view and any(is_meant(uri, published) for uri in listen.uris)
            if is_subscribed and (listen.client is None or concerns(listen.client)):
                listen.send(method, fields)

    def logged(self, upstream: str, params: Raw, may_know: Callable[[Client], bool] = lambda _: True) -> None:
        """A log message of a server: to every session that asked for its level and may know of the server."""
        for client in list(self.clients):
            if client.view not in ("", upstream) or not may_know(client):
                continue
            if client.log_level and (message := log_notification(upstream, params, client.log_level, self._redact)):
                client.push(message)

    def add(self, listen: Listen) -> None:
        """One more listen stream; it has been acknowledged, or is about to be."""
        self.listens.add(listen)
        if self._are_over:
            listen.ended.set_result(None)

    def end_all(self) -> None:
        """End every listen stream in good order, also those that come after this."""
        self._are_over = True
        for listen in self.listens:
            listen.end()


def _meta_of(fields: Fields) -> Fields:
    """The `_meta` of a notification without the id of the stream that brought it."""
    try:
        meta = decode_fields(fields["_meta"])
    except (KeyError, msgspec.DecodeError):
        return {}
    meta.pop(SUBSCRIPTION_ID, None)
    return meta


def covers(subscribed: str, updated: str) -> bool:
    """Whether an update of `updated` concerns the subscriber of `subscribed`: itself, or a sub-resource of it."""
    return updated == subscribed or updated.startswith(subscribed.rstrip("/") + "/")
