"""Run as a program: give up everything that the command is not to have, then become it.

    python -I -S launcher_main.py ORDERS COMMAND ARG...

`ORDERS` is a JSON object: every step of it is optional, see `main`. The sandbox
"launcher" is this alone; inside bubblewrap it adds limits and the filter of system calls. Whatever step fails ends it
before the command runs, with code 126 and a line that begins with `REFUSED`. Standard library alone, and little of it:
each job waits for this.
"""

# for that reason:
# ruff: noqa: PTH103, PTH112, PTH120

import ctypes
import os
import sys

TYPE_CHECKING = False  # that of `typing`, without the import; nor is `signal` imported, which loads `enum`
if TYPE_CHECKING:
    from typing import Any

REFUSED = "mcpbridge sandbox: "
"""What a line on standard error begins with if the command could not be started."""

_SIGKILL, _SIGPIPE = 9, 13
_PDEATHSIG, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVILEGES, _SET_SECCOMP = 1, 24, 36, 38, 22
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NEW_USER, _NEW_NETWORK, _DUMPABLE = 0x10000000, 0x40000000, 4
_SET_FLAGS, _SET_ADDRESS, _SET_MASK, _UP, _RUNNING = 0x8914, 0x8916, 0x891C, 1, 64
_NEW_MOUNTS, _BIND, _RECURSIVE, _SLAVE = 0x20000, 4096, 16384, 1 << 19

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_OF_FILES, _ALL_OF_NETWORK, _ALL_SCOPES = (1 << 16) - 1, 3, 3
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6

_libc: "Any" = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None  # imported elsewhere, never run


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.c_void_p)]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _call(number: int, *arguments: "Any") -> int:
    wrapped = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *wrapped))


def landlock_version() -> int:
    """Which Landlock this kernel has; 0: none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, 1))


def _open_ways(mounts: "dict[str, list[str]]") -> None:
    """Make paths reachable that lie in directories which others may not enter. For this process and its children only.

    `mounts`: such a directory, and the paths in it. It becomes an empty one that holds these and nothing else.
    """
    _check(_libc.unshare(_NEW_MOUNTS), "unshare")
    _mount(None, "/", None, _RECURSIVE | _SLAVE, None)
    for directory, paths in mounts.items():
        held = [(path, os.open(path, os.O_PATH)) for path in paths]
        _mount("mcpbridge", directory, "tmpfs", 0, "mode=755,size=1m")
        for path, descriptor in held:
            source = f"/proc/self/fd/{descriptor}"
            if os.path.isdir(source):
                os.makedirs(path, 0o755, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            _mount(source, path, None, _BIND | _RECURSIVE, None)
            os.close(descriptor)


def _mount(source: "str | None", target: str, kind: "str | None", flags: int, options: "str | None") -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mounting {target}")


def _own_network(order: "dict[str, Any]") -> None:
    """Move into a network of its own, and send sockets that listen in it through `control`.

    It has the loopback alone. No right in it is left to what is executed later: that gets name spaces within these.
    """
    import _socket
    import fcntl

    user, group = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEW_USER | _NEW_NETWORK), "unshare")
    _libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # else the next files belong to root
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    resolver = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    interface = b"lo".ljust(16, b"\0")
    fcntl.ioctl(resolver.fileno(), _SET_FLAGS, interface + (_UP | _RUNNING).to_bytes(2, sys.byteorder) + b"\0" * 22)
    for number, network in enumerate(order["addresses"]):
        address, _, bits = network.partition("/")
        mask = (0xFFFFFFFF << (32 - int(bits)) & 0xFFFFFFFF).to_bytes(4, "big")
        alias = f"lo:{number + 1}".encode().ljust(16, b"\0") + _socket.AF_INET.to_bytes(2, sys.byteorder) + b"\0\0"
        fcntl.ioctl(resolver.fileno(), _SET_ADDRESS, alias + _socket.inet_aton(address) + b"\0" * 16)
        fcntl.ioctl(resolver.fileno(), _SET_MASK, alias + mask + b"\0" * 16)
    resolver.bind(("127.0.0.1", 53))
    listening = [_listening(_socket, "127.0.0.1", order["proxy"]), resolver]
    listening += [_listening(_socket, "0.0.0.0", port) for port in order["ports"]]  # noqa: S104 - the loopback alone
    control = _socket.socket(fileno=order["control"])
    descriptors = b"".join(one.fileno().to_bytes(4, sys.byteorder) for one in listening)
    control.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    for opened in (*listening, control):
        opened.close()


def _listening(module: "Any", address: str, port: int) -> "Any":
    listening = module.socket(module.AF_INET, module.SOCK_STREAM)
    listening.bind((address, port))
    listening.listen(128)
    return listening


def _watch_over(lifeline: int) -> None:
    """Leave a process behind that kills the group, itself included, when the other end of `lifeline` closes."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork():  # so that the command has no child that it does not know
        os._exit(0)
    os.closerange(0, lifeline)
    os.closerange(lifeline + 1, 256)
    os.read(lifeline, 1)
    os.killpg(0, _SIGKILL)


def _limit(limits: "dict[str, int]") -> None:
    import resource

    for name, most in limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _drop_capabilities() -> None:
    """For good: nothing that is executed later gets any of them back, not even as root."""
    for capability in range(64):
        if _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


def _restrict_files(rules: "dict[str, Any]") -> None:
    """Landlock: only what is listed can be opened. `network`: TCP stays open."""
    version = min(landlock_version(), int(rules.get("version", 99)))
    if not version:
        raise OSError(38, "this kernel has no Landlock")
    known = _KNOWN.get(version, _ALL_OF_FILES)
    fields = [known]
    if version >= _NETWORK_SINCE:
        fields.append(0 if rules["network"] else _ALL_OF_NETWORK)
    if version >= _SCOPES_SINCE:
        fields.append(_ALL_SCOPES)
    handled = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = _check(_call(_CREATE_RULESET, ctypes.byref(handled), 8 * len(fields), 0), "landlock")
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    for paths, rights in ((rules["read"], reading), (rules["write"], known)):
        for path in paths:
            _allow(ruleset, path, rights & known)
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _check(_call(_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(f"/proc/self/fd/{descriptor}") and not os.path.isdir(path):
        rights &= _ON_FILES
    # packed: 8 bytes of rights, 4 of the descriptor
    rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
    _check(_call(_ADD_RULE, ruleset, 1, rule, 0), f"landlock: {path}")
    os.close(descriptor)


def _filter_calls(program: "list[tuple[int, int, int, int]]") -> None:
    own = os.getpid()
    code = (_Instruction * len(program))(*[(c, jt, jf, own if k == -1 else k) for c, jt, jf, k in program])
    loaded = _Program(len(program), ctypes.cast(code, ctypes.c_void_p))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _check(_libc.prctl(_SET_SECCOMP, 2, ctypes.byref(loaded), 0, 0), "seccomp")


class _Plain:
    """How the reader of JSON in C is set up."""

    strict, memo = True, None
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


def _json_of(text: str) -> "Any":
    try:
        from _json import make_scanner  # `json` itself loads `re`, which takes longer than all of this program
    except ImportError:
        import json

        return json.loads(text)
    return make_scanner(_Plain())(text, 0)[0]  # pyright: ignore[reportArgumentType] - whatever has these members


def main() -> None:
    """Follow the orders, then become the command."""
    orders: dict[str, Any] = _json_of(sys.argv[1])
    command, *rest = sys.argv[2:]
    step = "starting"
    try:
        if ways := orders.get("ways"):
            step = "making programs reachable"
            _open_ways(ways)
        if (uid := orders.get("uid")) is not None:
            step = "becoming another user"
            _become(uid)
        if network := orders.get("network"):
            step = "setting up a network of its own"
            _own_network(network)
        if orders.get("powerless"):
            step = "giving up privileges"
            _drop_capabilities()
        step = "following the bridge"
        if parent := orders.get("parent"):
            _libc.prctl(_PDEATHSIG, _SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
        if (lifeline := orders.get("lifeline")) is not None:
            _watch_over(lifeline)
        if not orders.get("keeps"):
            os.closerange(3, 1 << 16)
        if orders.get("reaper"):
            _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if cwd := orders.get("cwd"):
            step = f"entering {cwd}"
            os.chdir(cwd)
        if rules := orders.get("files"):
            step = "restricting files"
            _restrict_files(rules)
        if processors := orders.get("processors"):
            step = "choosing processors"
            os.sched_setaffinity(0, processors)
        if limits := orders.get("limits"):
            step = "setting limits"
            _limit(limits)
        _libc.signal(_SIGPIPE, None)  # Python ignores it, and exec passes that on
        if program := orders.get("filter"):
            step = "filtering system calls"
            _filter_calls(program)
        step = f"running {command}"
        os.execve(command, [command, *rest], {**os.environ, **orders.get("late", {})})
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{REFUSED}{step}: {error}\n")
        sys.stderr.flush()
        os._exit(126)


if __name__ == "__main__":
    main()
