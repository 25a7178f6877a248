# ruff: noqa: E501, PTH102, PLW0108
"""Run as a program inside a sandbox: every way out that we know, each tried for real. Standard library only.

Standard input is JSON: what lies outside. The answer is a JSON object: the attempts, and whether each got through.
"""

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import sys
from pathlib import Path

WORLD = json.load(sys.stdin)
FILE, OUTSIDE, OTHER, SECRET = Path(WORLD["file"]), Path(WORLD["outside"]), WORLD["process"], WORLD["secret"].encode()
HERE = Path.cwd()
libc = ctypes.CDLL(None, use_errno=True)
ATTEMPTS = {}


def attempt(function):
    ATTEMPTS[function.__name__] = function
    return function


def call(name, *arguments):
    """A system call by name; raises as those of Python do."""
    result = libc.syscall(
        ctypes.c_long(WORLD["calls"][name]), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def reaches(family, kind, address):
    with socket.socket(family, kind) as opened:
        opened.settimeout(1)
        opened.connect(address)
        opened.send(SECRET)


def in_child(function):
    """Whether it succeeds in a process of its own, which may die of it. False where none can be had."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever it was, it did not get through
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


@attempt
def inherited_descriptors():
    return any(_is_open(number) for number in range(3, 64))


def _is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


# the network

ATTEMPTS["tcp"] = lambda: reaches(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", WORLD["port"]))
ATTEMPTS["tcp over ipv6"] = lambda: reaches(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", WORLD["port"]))
ATTEMPTS["unix socket"] = lambda: reaches(socket.AF_UNIX, socket.SOCK_STREAM, WORLD["socket"])
ATTEMPTS["abstract socket"] = lambda: reaches(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + WORLD["abstract"])


@attempt
def unix_datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.sendto(SECRET, WORLD["letters"])


@attempt
def datagram_pair_to_somewhere_else():
    first, _second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    first.sendto(SECRET, WORLD["letters"])


@attempt
def stream_pair_to_somewhere_else():
    first, _second = socket.socketpair()
    first.connect(WORLD["socket"])


for name, family, kind in (
    ("netlink", 16, socket.SOCK_RAW), ("packet socket", 17, socket.SOCK_RAW), ("vsock", 40, socket.SOCK_STREAM),
    ("kernel crypto socket", 38, socket.SOCK_SEQPACKET), ("raw socket", socket.AF_INET, socket.SOCK_RAW),
    ("bluetooth", 31, socket.SOCK_RAW), ("xdp", 44, socket.SOCK_RAW),
):  # fmt: skip
    ATTEMPTS[name] = lambda family=family, kind=kind: socket.socket(family, kind).close()


@attempt
def udp_and_the_answer():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.settimeout(0.5)
        opened.sendto(SECRET, ("127.0.0.1", WORLD["echo"]))
        opened.recv(10)


# files

for path in ("/etc/passwd", "/etc/shadow", "/proc/self/root/etc/passwd", "/root/.bashrc", "/dev/mem", "/dev/kmsg",
             "/dev/tty", "/var/log/dpkg.log", "/var/lib/dpkg/status", FILE, f"/proc/self/root{FILE}",
             f"/proc/self/cwd/../{OUTSIDE.name}/{FILE.name}", f"../{OUTSIDE.name}/{FILE.name}"):  # fmt: skip
    ATTEMPTS[f"read {path}"] = lambda path=path: os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 1) != b""
for name in ("environ", "cmdline", f"root{FILE}", "maps"):
    path = f"/proc/{OTHER}/{name}"
    ATTEMPTS[f"read {path}"] = lambda path=path: SECRET in Path(path).read_bytes()


@attempt
def read_by_link():
    Path("link").symlink_to(FILE)
    return Path("link").read_bytes()


@attempt
def read_by_link_to_directory():
    Path("directory").symlink_to(OUTSIDE)
    return (Path("directory") / FILE.name).read_bytes()


@attempt
def read_upwards():
    descriptor = os.open("..", os.O_RDONLY | os.O_DIRECTORY)
    return SECRET in Path(f"/proc/self/fd/{descriptor}/{OUTSIDE.name}/{FILE.name}").read_bytes()


@attempt
def read_by_hard_link():
    os.link(FILE, "hard")
    return Path("hard").read_bytes()


@attempt
def read_by_map():
    descriptor = os.open(FILE, os.O_RDONLY)
    mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)


@attempt
def list_outside():
    return any(name.name == FILE.name for name in OUTSIDE.iterdir())


@attempt
def run_a_program_outside():
    return in_child(lambda: os.execv(WORLD["program"], [WORLD["program"]]))


WRITES = ("/usr/canary", "/etc/canary", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/sys/kernel/mm/transparent_hugepage/enabled", sys.executable, json.__file__)  # fmt: skip
for path in WRITES:
    ATTEMPTS[f"write {path}"] = lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT))

ATTEMPTS |= {
    "cut a file": lambda: os.truncate(FILE, 0),
    "cut a file while reading": lambda: os.close(os.open(FILE, os.O_RDONLY | os.O_TRUNC)),
    "mode of a file": lambda: FILE.chmod(0o700),
    "owner of a file": lambda: os.chown(FILE, os.getuid(), os.getgid()),
    "times of a file": lambda: FILE.stat().st_uid == os.getuid() and os.utime(FILE),
    "attribute of a file": lambda: FILE.stat().st_uid == os.getuid() and os.setxattr(FILE, "user.canary", b"1"),
    "rename outside": lambda: FILE.rename(OUTSIDE / "other"),
    "move out": lambda: (HERE / "mine").write_text("x") and (HERE / "mine").rename(OUTSIDE / "mine"),
    "remove outside": lambda: FILE.unlink(),
    "make a directory": lambda: os.mkdir(OUTSIDE / "made"),
    "make a link": lambda: (OUTSIDE / "linked").symlink_to("x"),
    "make a fifo": lambda: os.mkfifo(OUTSIDE / "fifo"),
    "make a device": lambda: os.mknod("memory", 0o666 | 0o020000, os.makedev(1, 1)),
    "handle of a file": lambda: call("name_to_handle_at", -100, os.fsencode(FILE), bytes(256), bytes(8), 0),
}


# other processes


@attempt
def signal_another():
    os.kill(OTHER, 0)


ATTEMPTS |= {
    "signal the parent": lambda: os.getppid() > 1 and os.kill(os.getppid(), 0),
    "descriptor of another": lambda: signal.pidfd_send_signal(os.pidfd_open(OTHER), 0),
    "trace another": lambda: call("ptrace", 16, OTHER, 0, 0),
    "memory of another": lambda: call("process_vm_readv", OTHER, bytes(16), 1, bytes(16), 1, 0),
    "limits of another": lambda: resource.prlimit(OTHER, resource.RLIMIT_CORE, (0, 0)),
    "priority of another": lambda: os.setpriority(os.PRIO_PROCESS, OTHER, 19),
    "processors of another": lambda: os.sched_setaffinity(OTHER, {0}),
}


# another view of the system, and the kernel

NAMESPACES = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
              "pid": 0x20000000, "net": 0x40000000, "time": 0x80}  # fmt: skip
for name, flag in NAMESPACES.items():
    ATTEMPTS[f"unshare {name}"] = lambda flag=flag: in_child(lambda: call("unshare", flag))

ATTEMPTS |= {
    "clone a user namespace": lambda: call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0),
    "clone for another parent": lambda: call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0),
    "clone3": lambda: call("clone3", bytes(88), 88),
    "join a namespace": lambda: call("setns", os.open("/proc/self/ns/user", os.O_RDONLY), 0),
    "mount": lambda: call("mount", b"none", b".", b"tmpfs", 0, 0),
    "unmount": lambda: call("umount2", b"/usr", 2),
    "new mount": lambda: call("fsopen", b"tmpfs", 0),
    "chroot": lambda: os.chroot("."),
    "keyring": lambda: call("keyctl", 0, -3, 1),
    "add a key": lambda: call("add_key", b"user", b"canary", b"x", 1, -3),
    "io_uring": lambda: call("io_uring_setup", 4, bytes(120)),
    "bpf": lambda: call("bpf", 0, bytes(64), 64),
    "perf": lambda: call("perf_event_open", bytes(112), 0, -1, -1, 0),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "shared memory": lambda: call("shmget", 0, 1 << 20, 0o1600),
    "message queue": lambda: call("msgget", 0, 0o1600),
    "posix queue": lambda: call("mq_open", b"canary", 0o100 | 2, 0o600, 0),
    "memory file": lambda: os.memfd_create("canary"),
    "host name": lambda: socket.sethostname("canary"),
    "kernel log": lambda: call("syslog", 3, bytes(16), 16),
    "kernel module": lambda: call("init_module", bytes(8), 8, b""),
    "swap": lambda: call("swapoff", b"/x"),
    "reboot": lambda: call("reboot", 0, 0, 0, 0),
    "clock": lambda: call("clock_settime", 0, bytes(16)),
    "fanotify": lambda: call("fanotify_init", 0, 0),
    "become root": lambda: os.getuid() != 0 and os.setuid(0),
    "take privileges": lambda: (
        WORLD["calls"]
        and call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))
    ),
    "gain by a program": lambda: libc.prctl(39, 0, 0, 0, 0) != 1,
    "survive the bridge": lambda: (
        WORLD["tier"] == "launcher" and libc.prctl(1, 0, 0, 0, 0) == 0 and _death_signal() == 0
    ),
    "into a terminal": lambda: fcntl.ioctl(0, 0x5412, b"x"),
    "second abi": lambda: (
        os.uname().machine != "x86_64"
        or in_child(lambda: libc.syscall(ctypes.c_long(0x40000000 | 39)) > 0 or os._exit(1))
    ),
    "call of tomorrow": lambda: libc.syscall(ctypes.c_long(463)) >= 0 or ctypes.get_errno() != 38,
}


def _death_signal():
    number = ctypes.c_int(0)
    libc.prctl(2, ctypes.byref(number), 0, 0, 0)
    return number.value


# limits


@attempt
def large_file():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("large").open("wb") as file:
        file.seek(WORLD["file_size"])
        file.write(b"x")
        file.flush()


@attempt
def more_memory():
    return len(bytearray(WORLD["memory"] + (16 << 20)))


@attempt
def raise_limits():
    for name in (resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        resource.setrlimit(name, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@attempt
def core_dumps():
    return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


@attempt
def foreign_variables():
    return bool(set(os.environ) - set(WORLD["variables"]))


def main():
    results = {}
    for name, function in ATTEMPTS.items():
        try:
            results[name] = function() is not False
        except (OSError, MemoryError, ValueError):
            results[name] = False
    sys.stdout.write(json.dumps(results))


main()
