"""What is noted of a call while it runs, for the call log and for those who look at running calls."""

from collections.abc import Callable, Sequence
from itertools import count
from secrets import randbits

from msgspec import Raw, Struct, field

UID_BITS = 12
"""The lowest bits of a uid are a number; the others are the microseconds since 1970 at which its call began."""

MOST_STAGES = 32
"""Times of stages that are noted of one call: retries repeat some."""

SERVER = "server"
"""How people see the server or tool that does the work named, among the stages of a call."""

Names = tuple[str, str, str, str, str, str, str, str, str, str, str, str]
"""Who calls what: method, server, tool (or what is asked for), client, principal, session, run, revision, user, IP
address, the client's version, OAuth client."""

_numbers = count(randbits(UID_BITS))


def new_uid(at: float) -> int:
    """What a call is known by that began `at`, in seconds since 1970: in all processes, and in the order of time.

    Two are the same only if they begin in the same microsecond, in two processes, and draw the same of 4096 numbers.
    """
    return int(at * 1e6) << UID_BITS | next(_numbers) & (1 << UID_BITS) - 1


def uid_text(uid: int) -> str:
    """How people see the uid of a call: 16 hexadecimal digits."""
    return f"{uid:016x}"


class ExpressStages(Struct, frozen=True, gc=False):
    """The times of the stages of a call that ended on the express lane: of those there are three, for all stages."""

    text: str
    """The stages as the call log has them, with places for the times in milliseconds; see `express_text`."""
    sent: float
    """Seconds from the beginning to when the call was sent."""
    answered: float
    over: float


def express_text(passed: Sequence[tuple[str, bool]], *, is_sent: bool = True) -> str:
    """`passed`: the stages, outermost first, and whether they have anything to do with the result.

    `is_sent` False: of calls that the last one answers.
    """
    times = [f'["{name}",0.00,{"{2}" if is_last or not is_sent else "{1}"}]' for name, is_last in passed]
    if is_sent:
        times.append(f'["{SERVER}",{{0}},{{1}}]')
    return f"[{','.join(times)}]"


class Recording(Struct, eq=False):
    """One call that is recorded."""

    uid: int
    at: float
    """Seconds since 1970, when it began."""
    began: float
    """The same on `time.perf_counter`."""
    keeps_content: bool = False
    """Arguments and result are kept."""
    asked: bytes | Raw = b""
    """Its arguments as they came to the first stage."""
    stage: str = ""
    """The stage that it reached last."""
    sent_at: float = 0.0
    """When it was handed to its server or tool the first time, on `time.perf_counter`; 0: it was not yet."""
    stages: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])
    """Names of the stages that it has passed, and when it came in and out, in seconds since it began: `MOST_STAGES`."""
    express_stages: "ExpressStages | None" = None
    """The same of a call that ended on the express lane."""
    digested: bytes | Raw | None = None
    """Arguments of which `digest` is the digest; None: none is known."""
    digest: bytes = b""
    names: Names | tuple[()] = ()
    """Who calls what, once it was found out."""
    running: int = 0
    """Its number among the calls under way in the call log; 0: it has none there."""
    decides: Callable[..., tuple[str, str]] | None = None
    """What says of the call which setting decided about it, and which role opens its tool; None: nobody asks."""
    decided: tuple[str, str] | None = None
    """What that said when it was sent; None: nobody asked by then."""


class RunningCall(Struct, frozen=True):
    """A call under way, as people see it."""

    uid: str
    """See `uid_text`."""
    method: str
    server: str
    tool: str
    client: str
    principal: str
    session: str
    since: float
    """Seconds since 1970, when it began; of a call that is not recorded, when somebody first looked."""
    seconds: float
    stage: str
    """Where it is; empty if that is not noted."""
    parent: str = ""
    """The uid of the call that made it."""
