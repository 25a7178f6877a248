"""The system calls that a sandboxed program may not make, as a seccomp filter. Pure.

A list of refusals rather than of permissions: what is refused is whatever reaches beyond the process tree (sockets,
signals, name spaces, kernel interfaces with a history of holes); what the kernel learned after this list was written
does not exist for the program. Other architectures than the one named, and the second ABI of x86-64, end it.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand of a classic BPF instruction."""

OWN_PID = -1
"""As an operand: the process id of whoever loads the filter, filled in by the launcher."""


class Filtering(Struct, frozen=True):
    """What differs between filters."""

    network: bool = False
    """IPv4 and IPv6 may be used."""
    may_fork: bool = True
    """It may start processes; threads are always allowed."""
    shares_processes: bool = True
    """There is no process name space: it must stay in its group, and leave the settings of other processes alone."""
    own_signals_only: bool = False
    """Signals go to itself and its group alone: nothing else keeps them from the user's other processes."""
    owns_files: bool = False
    """It runs as a user who owns files outside: their modes, owners, times and attributes are to stay."""
    guards_truncation: bool = False
    """Nothing else keeps it from cutting files off that it may only read (Landlock before its third version)."""
    keeps_processors: bool = False
    """It may not choose the processors that it runs on."""


_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "arm64": (0xC00000B7, 1)}
_EPERM, _EAGAIN, _ENOSYS = 1, 11, 38
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _AND, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_NEWEST = 462
"""The last system call that this list knows of."""

# Numbers on x86-64 and aarch64; None where it has no such call. From 424 on they are the same everywhere.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198),
    "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "setsid": (112, 157),
    "setpgid": (109, 154), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "kcmp": (312, 272), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "lookup_dcookie": (212, 18), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "uselib": (134, None), "nfsservctl": (180, 42), "prctl": (157, 167),
    "prlimit64": (302, 261), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "fcntl": (72, 25),
    "ioctl": (16, 29), "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "truncate": (76, 45), "open": (2, None), "openat": (257, 56),
    "openat2": (437, 437), "creat": (85, None), "capset": (126, 91),
}  # fmt: skip

_NEVER = (
    # other processes, and what could do any of the rest unseen
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
    "bpf", "perf_event_open",
    "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    # another view of the system
    "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "chroot", "unshare", "setns",
    "open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark", "capset",
    # the system itself
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "swapon", "swapoff", "reboot",
    "acct", "quotactl", "quotactl_fd",
    "lookup_dcookie", "vhangup", "iopl", "ioperm", "modify_ldt", "settimeofday", "clock_settime", "clock_adjtime",
    "adjtimex", "sethostname",
    "setdomainname", "syslog", "migrate_pages", "move_pages", "uselib", "nfsservctl",
    # what outlives it, and memory that belongs to no process
    "add_key", "request_key", "keyctl", "shmget", "msgget", "semget", "mq_open", "memfd_secret",
)  # fmt: skip

_NEW_NAMESPACE, _OTHER_PARENT, _THREAD = 0x7E020000, 0x8000, 0x10000
_INTERNET, _STREAM, _DATAGRAM, _PACKETS = (2, 10), 1, 2, 5
_DEATH_SIGNAL, _SUBREAPER = 1, 36
_INTO_TERMINAL, _OWNER_BY_IOCTL, _OWNER_BY_FCNTL = (0x5412, 0x541C), (0x8901, 0x8902), (8, 10, 15)
_MODE, _CUT = 3, 0o1000


class _Test(Struct, frozen=True):
    """`action` if an argument's lower half, masked, is one of `values`; with none, if any bit of the mask is set."""

    argument: int
    action: int
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF
    is_unlike: bool = False
    """`action` if it is none of `values`."""
    is_upper: bool = False
    """It is the upper half that counts."""


def is_supported(machine: str) -> bool:
    """Whether its system calls are known here; `machine` as uname says it."""
    return machine in _MACHINES


def filter_of(machine: str, filtering: Filtering) -> list[Instruction]:
    """The program to load.

    Raises:
        KeyError: the machine is not supported.
    """
    word, column = _MACHINES[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, word),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    program += [(_GREATER, 0, 1, _NEWEST), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for name, tests, otherwise in _rules(filtering):
        number = _CALLS[name][column]
        if number is not None:
            body = _body(tests, otherwise)
            program += [(_EQUAL, 0, len(body), number), *body]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _body(tests: Iterable[_Test], otherwise: int) -> list[Instruction]:
    """The tests of one system call, in order; each ends it or passes on."""
    body: list[Instruction] = []
    for test in tests:
        body.append((_LOAD, 0, 0, _ARGUMENTS + 8 * test.argument + 4 * test.is_upper))
        if not test.values:
            body += [(_ANY_BIT, 0, 1, test.mask), (_RETURN, 0, 0, test.action)]
            continue
        if test.mask != 0xFFFFFFFF:
            body.append((_AND, 0, 0, test.mask))
        if test.is_unlike:
            last = len(test.values)
            body += [(_EQUAL, last - place, 0, value) for place, value in enumerate(test.values)]
            body.append((_RETURN, 0, 0, test.action))
            continue
        for value in test.values:
            body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, test.action)]
    return [*body, (_RETURN, 0, 0, otherwise)]


def _rules(filtering: Filtering) -> list[tuple[str, Sequence[_Test], int]]:
    """Name, tests, and what happens when none of them decides."""
    refuse, missing = _ERRNO | _EPERM, _ERRNO | _ENOSYS
    rules: list[tuple[str, Sequence[_Test], int]] = [(name, (), refuse) for name in _NEVER]
    # The flags of clone3 lie in memory, where no filter sees them: libraries fall back to clone.
    rules += [("clone3", (), missing), ("memfd_create", (), missing)]
    rules += [*_starting(filtering, refuse), *_sockets(filtering, refuse)]
    settings = (_Test(0, _ERRNO, (_DEATH_SIGNAL, _SUBREAPER)),)  # "done", and nothing is
    rules.append(("prctl", settings, _ALLOW))
    owners = _OWNER_BY_IOCTL if filtering.own_signals_only else ()
    rules.append(("ioctl", (_Test(1, refuse, _INTO_TERMINAL + owners),), _ALLOW))
    if filtering.keeps_processors:
        rules.append(("sched_setaffinity", (), refuse))
    if filtering.shares_processes:
        rules += [("setsid", (), refuse), ("setpgid", (), refuse), *_settings_of_others(refuse)]
    if filtering.own_signals_only:
        rules += _signals(refuse)
    if filtering.owns_files:
        rules += _attributes(refuse)
    if filtering.guards_truncation:
        rules += [("truncate", (), refuse), ("openat2", (), missing)]
        for name, flags in (("open", 1), ("openat", 2)):
            rules.append((name, (_Test(flags, refuse, (_CUT,), _CUT | _MODE),), _ALLOW))
    return rules


def _starting(filtering: Filtering, refuse: int) -> list[tuple[str, Sequence[_Test], int]]:
    none_left = _ERRNO | _EAGAIN  # as the kernel says it at the limit
    apart = _Test(0, refuse, mask=_NEW_NAMESPACE)
    thread = _Test(0, _ALLOW, mask=_THREAD)
    if not filtering.may_fork:
        return [("fork", (), none_left), ("vfork", (), none_left), ("clone", (apart, thread), none_left)]
    return [("clone", (apart, thread, _Test(0, refuse, mask=_OTHER_PARENT)), _ALLOW)]


def _sockets(filtering: Filtering, refuse: int) -> list[tuple[str, Sequence[_Test], int]]:
    # A pair of streams is a pipe. One of datagrams could be connected to any other socket afterwards.
    pairs = ("socketpair", (_Test(1, _ALLOW, (_STREAM, _PACKETS), 0xF),), refuse)
    if not filtering.network:
        return [pairs, *((name, (), refuse) for name in ("socket", "connect", "bind", "listen"))]
    family = _Test(0, refuse, _INTERNET, is_unlike=True)
    return [pairs, ("socket", (family, _Test(1, _ALLOW, (_STREAM, _DATAGRAM), 0xF)), refuse)]


def _settings_of_others(refuse: int) -> list[tuple[str, Sequence[_Test], int]]:
    own = (_Test(0, _ALLOW, (0, OWN_PID)),)
    rules: list[tuple[str, Sequence[_Test], int]] = [
        (name, own, refuse)
        for name in ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity")
    ]
    rules += [(name, (_Test(1, _ALLOW, (0, OWN_PID)),), refuse) for name in ("setpriority", "ioprio_set")]
    return rules


def _signals(refuse: int) -> list[tuple[str, Sequence[_Test], int]]:
    rules: list[tuple[str, Sequence[_Test], int]] = [("kill", (_Test(0, _ALLOW, (0, OWN_PID)),), refuse)]
    rules += [
        (name, (_Test(0, _ALLOW, (OWN_PID,)),), refuse) for name in ("tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
    ]
    rules += [(name, (), refuse) for name in ("tkill", "pidfd_open", "pidfd_send_signal")]
    return [*rules, ("fcntl", (_Test(1, refuse, _OWNER_BY_FCNTL),), _ALLOW)]


def _attributes(refuse: int) -> list[tuple[str, Sequence[_Test], int]]:
    names = (
        "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "setxattr", "lsetxattr", "removexattr",
        "lremovexattr", "utime", "utimes", "futimesat",
    )  # fmt: skip
    rules: list[tuple[str, Sequence[_Test], int]] = [(name, (), refuse) for name in names]
    without_path = (_Test(1, refuse, (0,), is_unlike=True), _Test(1, refuse, (0,), is_unlike=True, is_upper=True))
    return [*rules, ("utimensat", without_path, _ALLOW)]  # without one it is about a file that is open already
