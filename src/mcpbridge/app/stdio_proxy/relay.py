"""Carry the lines of one client to its daemon and back, from daemon to daemon, until the client goes.

The shim is in one of these states:

- *starting*: the first daemon has not greeted. Where there are snapshots, the client's first requests are answered from
  one (`early_answers.py`), and what else it says waits for the greeting; then comes *introducing*. A daemon that runs
  has a moment to greet before that. Without a snapshot for this client all goes as if connected.
- *connected*: lines go both ways as they come. The hello and what the client says are sent without waiting for the
  daemon's greeting, which may take as long as the daemon's start.
- *introducing*: a new daemon gets the handshake that its predecessor took. Until it has answered, nothing else is
  said to it.
- *dormant*: the daemon was stopped, and the client wants nothing. Its next request starts another; one that is started
  by others is found.

A connection ends with a farewell (what has no answer was not read, and is sent again), before the greeting (nothing was
read), or without either: the daemon crashed, and what it may have begun is not repeated if that could do harm; see
`Requests`. When daemons fail again and again, a bridge for this client alone takes their place: in this process as long
as the client has not heard anything, else in one of its own, on a connection like theirs.
"""

import select
import socket
import time

from mcpbridge.app.exit_codes import UNANSWERED
from mcpbridge.app.stdio_proxy.connections import ClientEnd, ClientGone, Link
from mcpbridge.app.stdio_proxy.crash_limit import Crashes
from mcpbridge.app.stdio_proxy.handshake import Farewell, Greeting, Refusal, is_own, read
from mcpbridge.app.stdio_proxy.messages import failed_start
from mcpbridge.app.stdio_proxy.replay import Memory
from mcpbridge.app.stdio_proxy.start_retries import Daemons, Unreachable

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    from mcpbridge.app.stdio_proxy.early_answers import EarlyAnswers


CHILD_PATIENCE = 20.0
"""Seconds that a bridge of our own has to end in order."""
LEAST_GRACE = 1.9
"""Seconds that a daemon lets requests continue, at the least, once the client says nothing more."""
LOOK_AGAIN = 1.0
"""Seconds between two looks for a daemon, where one was stopped."""
GREETING_DELAY = 0.03
"""Seconds that a daemon which was there has to greet, before a snapshot answers instead of it: it may be starting."""
MOST_LATER = 8 << 20
"""Bytes of the client that wait for the greeting, above which it is not read."""


class Alone(Exception):
    """No daemon can be had, and the client has heard nothing yet: the bridge may run in this very process."""

    def __init__(self, reason: str, head: bytes) -> None:
        """`head`: what was read of the client."""
        super().__init__(reason)
        self.head = head


class Refused(Exception):
    """The daemon does not serve this client; the message says why."""


class Relay:
    """One client, and whoever answers it."""

    def __init__(
        self,
        client: ClientEnd,
        daemons: Daemons,
        hello: bytes,
        start_standalone: "Callable[[str], tuple[socket.socket, Popen[bytes]]]",
        open_snapshots: "Callable[[Memory], EarlyAnswers] | None" = None,
    ) -> None:
        """`start_standalone` makes a bridge for this client alone, and shows people the reason that it gets.

        `open_snapshots` makes what answers until a daemon has greeted; None: nothing does.
        """
        self._client, self._daemons, self._hello = client, daemons, hello
        self._start_standalone = start_standalone
        self._memory = Memory()
        self._open_snapshots = open_snapshots
        """None once it was called, or a daemon has greeted."""
        self._early: EarlyAnswers | None = None
        self._open_at = 0.0
        """When snapshots are opened for what waits, by the monotonic clock."""
        self._link: Link | None = None
        self._later: list[bytes] = []
        """Lines of the client that wait for the end of the introduction."""
        self._crashes = Crashes()
        self._is_stopped = False
        """The last daemon was stopped by people: another is started only if it is needed."""
        self.child: Popen[bytes] | None = None
        """The bridge of this client alone."""
        self._code: int | None = None
        """The exit code, once all is over."""

    def run(self) -> int:
        """Relay until the client or the bridge ends; returns the exit code.

        Raises:
            Alone: see there.
            Refused: see there.
        """
        try:
            self._connect()
            while self._code is None:
                self._turn()
            self._client.write_last()
        except ClientGone:
            self._code = 0
        finally:
            self._disconnect()
            self._end_early()
            code = self._end_child()
        return code or self._code or 0

    def _turn(self) -> None:
        link = self._link
        due = None if link is None else link.due
        if self._open_snapshots is not None and self._later:
            due = self._open_at
        seconds = LOOK_AGAIN if link is None else None if due is None else due - time.monotonic()
        is_full = self._early is not None and self._early.waiting > MOST_LATER
        listens = not self._memory.is_introducing and not is_full
        reads, flags = self._client.wait(link, listens=listens, seconds=seconds)
        if link is None:
            self._look_again()
        else:
            if flags & select.POLLOUT:
                link.up.flush()
            if flags & ~select.POLLOUT:
                self._hear(link)
        if reads and self._code is None:
            for line in self._client.read():
                self._send(line)
        if self._open_snapshots is not None and self._later and time.monotonic() >= self._open_at:
            self._begin_early()
        if self._memory.outdated:
            self._client.tell(self._memory.notices())
        self._pass_on_end()
        if link is not None and link is self._link and link.due is not None and time.monotonic() >= link.due:
            self._overdue(link)

    # -- from the client

    def _send(self, line: bytes) -> None:
        if self._memory.is_introducing or self._open_snapshots is not None:
            self._later.append(line)
        elif self._early is not None:
            self._answer_early(self._early, line)
        elif self._link is not None:
            if self._memory.from_client(line, self._link.up.queued):
                self._link.up.put(line)
        else:
            self._memory.from_client(line, 0)
            if self._memory.wants_answers:
                self._connect()

    def _pass_on_end(self) -> None:
        """Once all is passed on that the client said, tell that it says nothing more."""
        if self._client.hears or self._later or self._memory.is_introducing:
            return
        if self._link is None or (self._early is not None and self._early.is_open):
            self._code = self._code or 0
        elif not self._link.is_ending and not self._link.up.pending:
            self._link.end()

    # -- from a snapshot

    def _begin_early(self) -> None:
        """There is no greeting yet: answer what the client has asked, and will, as far as a snapshot has it."""
        if self._open_snapshots is None:
            return
        self._early, self._open_snapshots = self._open_snapshots(self._memory), None
        later, self._later = self._later, []
        for line in later:
            self._send(line)

    def _answer_early(self, early: "EarlyAnswers", line: bytes) -> None:
        answer = early.take(line, self._later)
        if answer:
            self._client.head = None  # from here on a bridge in this process would know too little
            self._client.tell([answer])
        elif not early.is_open:  # nothing is known of this client
            self._end_early()
            later, self._later = self._later, []
            for waiting in later:
                self._send(waiting)
        elif self._link is None and self._later:
            self._connect()

    def _end_early(self) -> None:
        self._open_snapshots = None
        if self._early is not None:
            self._early.close()
            self._early = None

    # -- from whoever answers

    def _hear(self, link: Link) -> None:
        data = link.receive()
        if data:
            self._client.tell([line for line in link.lines.feed(data) if self._is_for_client(link, line)])
            if self._memory.is_refused or link.refusal:
                self._handshake_refused(link.refusal or "it refuses the client")
        elif data is not None:
            self._ended(link)

    def _is_for_client(self, link: Link, line: bytes) -> bool:
        if link.is_greeted and not is_own(line):
            was_introducing = self._memory.is_introducing
            is_for_client = self._memory.from_daemon(line)
            if was_introducing and not self._memory.is_introducing and not self._memory.is_refused:
                self._resume(link)
            return is_for_client
        match read(line):
            case Greeting(listings=listings) if not link.is_greeted:
                link.greeted()
                self._client.head, self._is_stopped = None, False
                self._client.tell(self._memory.greeted(listings))
                if self._early is not None or self._open_snapshots is not None:
                    self._end_early()
                    self._introduce(link)
            case Refusal(code="unknown-server" | "unknown-profile", message=message):
                raise Refused(message)
            case Refusal(message=message):
                link.refusal = message
            case Farewell() as farewell:
                link.farewell = farewell
            case _:
                pass  # nothing that is known here; if it was to be the greeting, there will be none
        return False

    # -- who answers

    def _connect(self) -> None:
        try:
            connection, is_started = self._daemons.reach(self._pause)
        except Unreachable as error:
            self._stand_alone(str(error))
            return
        self._greet(Link(connection, is_started=is_started))

    def _look_again(self) -> None:
        connection = self._daemons.find()
        if connection is not None:
            self._greet(Link(connection))

    def _greet(self, link: Link) -> None:
        self._link = link
        link.up.put(self._hello)
        if self._open_snapshots is not None:
            self._open_at = time.monotonic() + (0 if link.is_started else GREETING_DELAY)
        elif self._early is None:
            self._introduce(link)

    def _pause(self, seconds: float) -> None:
        """Wait, as long as the client is there."""
        self._client.wait(None, listens=False, seconds=seconds)

    def _stand_alone(self, reason: str) -> None:
        if self._client.head is not None:
            raise Alone(reason, bytes(self._client.head))
        try:
            connection, self.child = self._start_standalone(reason)
        except OSError:
            self._code = UNANSWERED
            return
        self._end_early()
        self._link = Link(connection, greets=False)
        self._client.tell(self._memory.greeted(""))
        self._introduce(self._link)

    def _introduce(self, link: Link) -> None:
        introduction = self._memory.introduction()
        if introduction:
            link.up.put(introduction)
        else:
            self._resume(link)

    def _resume(self, link: Link) -> None:
        for line in self._memory.resume(link.up.queued):
            link.up.put(line)
        later, self._later = self._later, []
        for line in later:
            self._send(line)

    # -- ends

    def _ended(self, link: Link) -> None:
        """The connection is over: find out what that means."""
        self._disconnect()
        is_crash = link.farewell is None
        self._is_stopped |= link.farewell is not None and not link.farewell.again
        if self.child is not None:
            self._fail_later("the bridge ended before it had started")
            self._code = 0
            return
        if link.is_ending and link.is_greeted and is_crash:
            self._leave(link)
            return
        self._client.tell(self._memory.lose(link.up.sent if link.is_greeted and is_crash else None))
        is_wanted = self._memory.wants_answers or bool(self._later)
        failed_start = link.is_started and not link.is_greeted
        if not failed_start and not self._client.hears and not is_wanted:
            self._code = 0
        elif reason := self._why_alone(link, is_crash=is_crash):
            self._stand_alone(reason)
        elif is_wanted or not self._is_stopped:
            self._connect()

    def _leave(self, link: Link) -> None:
        """The client has said all that it had to, and who was to answer has ended: what has no answer gets none.

        After some time that is how conversations end, with a client that does not wait for all answers.
        """
        is_early = time.monotonic() - link.ending_since < LEAST_GRACE
        self._code = int(is_early and self._memory.wants_answers)
        self._client.tell(self._memory.lose(link.up.sent, for_good=True))

    def _why_alone(self, link: Link, *, is_crash: bool) -> str:
        if is_crash and not link.is_started and not link.is_greeted:
            self._pause(self._crashes.pause())  # it was met while it ended: wait for it to be gone
        return self._crashes.why_alone(
            time.monotonic(), was_started_here=link.is_started, was_greeted=link.is_greeted, is_crash=is_crash
        )

    def _overdue(self, link: Link) -> None:
        if link.is_ending and link.is_greeted:
            self._leave(link)
            return
        self._disconnect()
        told = self._memory.lose(link.up.sent)
        if told:  # what it may have begun must not be given to a bridge as the client wrote it
            self._client.head = None
            self._client.tell(told)
        self._stand_alone("it does not answer")

    def _handshake_refused(self, reason: str) -> None:
        """The hello or the handshake was refused: only a bridge that starts now can know better, if any."""
        self._memory.is_refused = False
        self._disconnect()
        self._client.tell(self._memory.lose(None))
        if self.child is not None:
            self._fail_later(self._memory.refusal or reason)
            self._code = UNANSWERED
        else:
            self._stand_alone(reason)

    def _fail_later(self, reason: str) -> None:
        """There will be nobody for the requests that wait."""
        later, self._later = self._later, []
        self._client.tell([answer for line in later if (answer := failed_start(line, reason))])

    def _disconnect(self) -> None:
        if self._link is not None:
            self._client.forget(self._link)
            self._link.close()
            self._link = None

    def _end_child(self) -> int:
        """Wait for the end of the bridge of our own, which ends with its connection; returns its exit code."""
        if self.child is None:
            return 0
        from subprocess import TimeoutExpired

        try:
            code = self.child.wait(CHILD_PATIENCE)
        except TimeoutExpired:
            self.child.kill()
            code = self.child.wait()
        return code if code >= 0 else 1
