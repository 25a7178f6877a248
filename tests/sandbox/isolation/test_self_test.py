"""A sandbox that is broken on purpose is found out and refused; so is one that cannot be tried."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mcpbridge.base.errors import ToolInactive
from mcpbridge.sandbox import runner as execution
from mcpbridge.sandbox.isolation import self_test as canaries
from mcpbridge.sandbox.isolation import supervisor as tree
from mcpbridge.sandbox.isolation.bubblewrap import Bubblewrap
from mcpbridge.sandbox.isolation.launcher import Launcher
from mcpbridge.sandbox.isolation.tier import Start
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from support.sandbox.sandbox_runs import isolation, python, usable

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are sandboxes on Linux only")

Orders = dict[str, Any]


class BrokenLauncher(Launcher):
    def __init__(self, spoil: Callable[[Orders], None]) -> None:
        super().__init__()
        self._spoil = spoil

    def orders(self, start: Start) -> Orders:
        orders = super().orders(start)
        self._spoil(orders)
        return orders


class BrokenBubblewrap(Bubblewrap):
    def __init__(
        self, *more: str, without: tuple[str, ...] = (), inside: Callable[[Orders], None] | None = None
    ) -> None:
        super().__init__()
        self._more, self._without, self._inside = more, without, inside

    def options(self, start: Start) -> list[str]:
        options = super().options(start)
        for option in self._without:
            options.remove(option)
        place = options.index("--remount-ro")
        return [*options[:place], *self._more, *options[place:]]

    def orders_inside(self, start: Start) -> Orders:
        orders = super().orders_inside(start)
        if self._inside is not None:
            self._inside(orders)
        return orders


def without(*keys: str) -> Callable[[Orders], None]:
    def spoil(orders: Orders) -> None:
        for key in keys:
            del orders[key]

    return spoil


def without_limit(name: str) -> Callable[[Orders], None]:
    return lambda orders: orders["limits"].pop(name)


NO_SECCOMP = without("filter")
BROKEN = {
    "launcher without seccomp": (lambda: BrokenLauncher(NO_SECCOMP), {"net", "tree"}),
    "launcher without Landlock": (lambda: BrokenLauncher(without("files")), {"fs", "proc"}),
    "launcher without a limit on memory": (lambda: BrokenLauncher(without_limit("DATA")), {"memory"}),
    "launcher without a limit on processes": (lambda: BrokenLauncher(without_limit("NPROC")), {"pids"}),
    "bubblewrap on the host's network, unfiltered": (
        lambda: BrokenBubblewrap("--share-net", inside=NO_SECCOMP),
        {"net"},
    ),
    "bubblewrap that shows everything": (lambda: BrokenBubblewrap("--bind", "/tmp", "/tmp"), {"fs"}),
    "bubblewrap that shows the host's processes": (lambda: BrokenBubblewrap("--bind", "/proc", "/proc"), {"proc"}),
    "bubblewrap without limits": (lambda: BrokenBubblewrap(inside=without("limits")), {"memory", "pids"}),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_sandbox_is_refused(kind: str) -> None:
    """Issue 8: a tier counts only when every canary was stopped; the refusal names what is missing."""
    make, broken = BROKEN[kind]
    await usable(kind.split()[0])
    sandbox = Isolation(SandboxSettings(), tiers=[make()])

    (report,) = (await sandbox.readiness()).tiers

    assert broken <= report.fails.keys()
    with pytest.raises(ToolInactive) as refused:
        await sandbox.run(python("print(1)"))
    assert all(name in str(refused.value) for name in broken)
    assert refused.value.advice


async def test_a_sandbox_that_hands_the_bridges_environment_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = execution.environment
    monkeypatch.setattr(execution, "environment", lambda env, folder: {"SECRET_TOKEN": "x", **rebuilt(env, folder)})

    readiness = await Isolation(SandboxSettings(), tiers=[Launcher()]).readiness()

    assert readiness.tiers[0].fails == {"env": "the variable SECRET_TOKEN"}
    assert readiness.chosen == ""


async def test_a_bridge_that_does_not_watch_the_memory_of_several_processes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Limits of the kernel are each process's own (setrlimit(2), RLIMIT_AS)."""
    await usable("bubblewrap")
    monkeypatch.setattr(tree, "LOOK_SECONDS", 600)
    monkeypatch.setattr(canaries, "_TOGETHER_WITHIN", 0.5)

    readiness = await Isolation(SandboxSettings(), tiers=[Bubblewrap()]).readiness()

    assert readiness.tiers[0].fails == {"memory": "more memory in several processes"}


async def test_the_next_sandbox_is_taken_when_the_first_one_is_broken() -> None:
    sandbox = Isolation(
        SandboxSettings(), tiers=[BrokenBubblewrap(without=("--unshare-user",)), BrokenLauncher(NO_SECCOMP), Launcher()]
    )

    readiness = await sandbox.readiness()

    assert readiness.chosen == "launcher"
    assert (await sandbox.run(python("print(1)"))).tier == "launcher"


async def test_a_property_that_is_not_required_may_be_missing() -> None:
    settings = SandboxSettings(require=("env", "proc", "pids"))
    sandbox = Isolation(settings, tiers=[BrokenLauncher(NO_SECCOMP)])

    assert (await sandbox.run(python("print(1)"))).stdout == b"1\n"


async def test_what_cannot_be_tried_is_named_with_the_fix() -> None:
    sandbox = Isolation(SandboxSettings(), tiers=[Bubblewrap("")])

    missing, fix = await sandbox.why_none() or ("", "")

    assert "bubblewrap is not installed" in missing
    assert "mcpbridge[sandbox]" in fix


async def test_a_program_that_is_no_sandbox_proves_nothing(tmp_path: Any) -> None:
    """Whoever puts a program named bwrap there that does nothing is not believed."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    tmp_path.chmod(0o755)

    readiness = await Isolation(SandboxSettings(), tiers=[Bubblewrap(str(fake))]).readiness()

    assert readiness.chosen == ""
    assert "could not be tried" in readiness.tiers[0].lacks


async def test_switched_off_is_off_by_hand_alone() -> None:
    sandbox = isolation("off")

    ran = await sandbox.run(python("import os; print(sorted(os.environ))"))

    assert sandbox.is_off
    assert ran.tier == "off"
    assert "PYTEST_CURRENT_TEST" not in ran.stdout.decode()
    assert (await sandbox.readiness()).as_json()["chosen"] == "off"
