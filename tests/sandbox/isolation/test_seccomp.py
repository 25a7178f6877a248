"""The filter of system calls, run by an interpreter of its own: every call, on each architecture."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.isolation import seccomp as system_calls
from mcpbridge.sandbox.isolation.seccomp import OWN_PID, Filtering, filter_of

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OWN = 4711
FILTERS = {
    (machine, fork, net): filter_of(machine, Filtering(may_fork=fork, network=net))
    for machine in MACHINES
    for fork in (True, False)
    for net in (True, False)
}


def verdict(
    program: list[tuple[int, int, int, int]], machine: str, number: int, *arguments: int, word: int | None = None
) -> str:
    """What the kernel would do: `allow`, `kill`, or the name of the error."""
    padded = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, word if word is not None else MACHINES[machine], 0, *padded)
    accumulator, place = 0, 0
    for _ in range(len(program) + 1):
        code, yes, no, operand = program[place]
        operand = OWN if operand == OWN_PID else operand
        place += 1
        if code == 0x20:
            accumulator = int.from_bytes(data[operand : operand + 4], "little")
        elif code == 0x54:
            accumulator &= operand
        elif code == 0x06:
            action = operand & 0xFFFF0000
            return {0x7FFF0000: "allow", 0x80000000: "kill"}.get(action) or errno.errorcode.get(
                operand & 0xFFFF, "done"
            )
        else:
            test = {
                0x15: accumulator == operand,
                0x25: accumulator > operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[code]
            place += yes if test else no
    raise AssertionError("it does not end")


def number_of(machine: str, name: str) -> int:
    number = system_calls._CALLS[name][0 if machine == "x86_64" else 1]
    assert number is not None
    return number


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_refused_is_refused_whatever_its_arguments(machine: str) -> None:
    program = filter_of(machine, Filtering())
    for name in system_calls._NEVER:
        number = system_calls._CALLS[name][0 if machine == "x86_64" else 1]
        if number is not None:
            assert verdict(program, machine, number, 1, 2, 3) == "EPERM", name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected", "settings"),
    [
        ("socket", (2, 1), "EPERM", {}),
        ("socket", (2, 1), "allow", {"network": True}),
        ("socket", (10, 0x80802), "allow", {"network": True}),
        ("socket", (2, 3), "EPERM", {"network": True}),
        ("socket", (1, 1), "EPERM", {"network": True}),
        ("socket", (16, 3), "EPERM", {"network": True}),
        ("socketpair", (1, 0x80001), "allow", {}),
        ("socketpair", (1, 5), "allow", {}),
        ("socketpair", (1, 2), "EPERM", {}),
        ("connect", (3,), "EPERM", {}),
        ("connect", (3,), "allow", {"network": True}),
        ("clone", (17,), "allow", {}),
        ("clone", (17,), "EAGAIN", {"may_fork": False}),
        ("clone", (0x4111,), "EAGAIN", {"may_fork": False}),
        ("clone", (0x3D0F00,), "allow", {"may_fork": False}),
        ("clone", (0x10000011,), "EPERM", {}),
        ("clone", (0x10010011,), "EPERM", {"may_fork": False}),
        ("clone", (0x8011,), "EPERM", {}),
        ("clone3", (1, 88), "ENOSYS", {}),
        ("setsid", (), "EPERM", {}),
        ("setsid", (), "allow", {"shares_processes": False}),
        ("prctl", (1, 0), "done", {}),
        ("prctl", (36, 0), "done", {}),
        ("prctl", (15, 1), "allow", {}),
        ("prlimit64", (0,), "allow", {}),
        ("prlimit64", (OWN,), "allow", {}),
        ("prlimit64", (OWN + 1,), "EPERM", {}),
        ("kill", (OWN + 1, 9), "allow", {}),
        ("kill", (OWN + 1, 9), "EPERM", {"own_signals_only": True}),
        ("kill", (2**64 - 1, 9), "EPERM", {"own_signals_only": True}),
        ("kill", (OWN, 9), "allow", {"own_signals_only": True}),
        ("tgkill", (OWN, OWN + 3, 6), "allow", {"own_signals_only": True}),
        ("tgkill", (OWN + 1, OWN + 1, 6), "EPERM", {"own_signals_only": True}),
        ("fcntl", (3, 8, 1), "EPERM", {"own_signals_only": True}),
        ("fcntl", (3, 3), "allow", {"own_signals_only": True}),
        ("fchmodat", (1,), "allow", {}),
        ("fchmodat", (1,), "EPERM", {"owns_files": True}),
        ("utimensat", (3, 0), "allow", {"owns_files": True}),
        ("utimensat", (3, 0x7F00), "EPERM", {"owns_files": True}),
        ("utimensat", (3, 1 << 32), "EPERM", {"owns_files": True}),
        ("openat", (3, 1, 0o1000), "EPERM", {"guards_truncation": True}),
        ("openat", (3, 1, 0o1001), "allow", {"guards_truncation": True}),
        ("openat", (3, 1, 0o1000), "allow", {}),
        ("ioctl", (0, 0x5412), "EPERM", {}),
        ("ioctl", (0, 0x5413), "allow", {}),
        ("memfd_create", (1,), "ENOSYS", {}),
    ],
)  # fmt: skip
def test_calls_depend_on_what_is_asked(
    machine: str, name: str, arguments: tuple[int, ...], expected: str, settings: dict[str, bool]
) -> None:
    program = filter_of(machine, Filtering(**settings))
    assert verdict(program, machine, number_of(machine, name), *arguments) == expected


def test_the_second_abi_and_other_architectures_end_it() -> None:
    program = filter_of("x86_64", Filtering())

    assert verdict(program, "x86_64", 0x40000000 | 39) == "kill"
    assert verdict(program, "x86_64", 0xFFFFFFFF) == "kill"
    assert verdict(program, "x86_64", 20, word=0x40000003) == "kill"
    assert verdict(filter_of("aarch64", Filtering()), "aarch64", 39, word=0x40000028) == "kill"


@given(st.sampled_from(sorted(FILTERS)), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_whatever_is_asked_there_is_an_answer(which: tuple[str, bool, bool], number: int, arguments: list[int]) -> None:
    said = verdict(FILTERS[which], which[0], number, *arguments)
    if number > system_calls._NEWEST:
        assert said in ("ENOSYS", "kill")


@given(st.sampled_from(sorted(MACHINES)), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_arguments_open_a_socket_or_a_name_space(machine: str, first: int, second: int) -> None:
    program = FILTERS[machine, True, False]
    assert verdict(program, machine, number_of(machine, "socket"), first, second) == "EPERM"
    pair = verdict(program, machine, number_of(machine, "socketpair"), first, second)
    assert (pair == "allow") == (second & 0xF in (1, 5))
    clone = verdict(program, machine, number_of(machine, "clone"), first)
    assert clone == "EPERM" or not first & 0x7E020000


def test_an_unknown_architecture_is_not_guessed() -> None:
    assert not system_calls.is_supported("riscv64")
    with pytest.raises(KeyError):
        filter_of("riscv64", Filtering())
