"""The dearest files first, when several processes run the tests.

A process takes the next file once it has ended one. A dear one that is taken last holds up the end of the run alone,
and `pytest-xdist` would take the files with the fewest tests last, which are the dear ones here.
"""

from pathlib import Path

import pytest

__all__ = ["DEAREST"]

DEAREST = (
    "tests/matrix/test_matrix.py",
    "tests/features/protocol/test_questions.py",
    "tests/faults/test_hostile_servers.py",
    "tests/clients/test_client_matrix.py",
    "tests/identity_provider/test_three_people.py",
    "tests/identity_provider/test_sign_in.py",
    "tests/identity_provider/test_identity_assertions.py",
    "tests/results_real/test_real_servers.py",
    "tests/results_real/test_real_clients.py",
    "tests/faults/test_hostile_http.py",
    "tests/fleet/test_checker.py",
    "tests/fleet/test_fleet_sessions.py",
    "tests/fleet/test_shared_process.py",
    "tests/fleet/test_shared_servers.py",
    "tests/fleet/test_shared_accounts.py",
    "tests/fleet/test_parked_calls.py",
    "tests/storage/redis/test_groups.py",
    "tests/docs/test_examples.py",
    "tests/app/console/test_every_page.py",
    "tests/app/console/test_calls_page.py",
    "tests/app/console/test_rare_pages.py",
    "tests/app/console/test_servers_page.py",
    "tests/app/console/test_approvals_page.py",
    "tests/app/console/test_keyboard.py",
    "tests/app/console/test_sign_in.py",
    "tests/app/cli/tools/test_lock.py",
    "tests/app/cli/tools/test_daemon_session.py",
    "tests/app/cli/test_manage.py",
    "tests/app/cli/config/test_trust_command.py",
    "tests/app/cli/daemon/test_daemon_commands.py",
    "tests/app/daemon/test_daemon_process.py",
    "tests/faults/test_load.py",
    "tests/faults/test_floods.py",
    "tests/scripts/test_flaky_tests.py",
    "tests/scripts/test_mutants.py",
    "tests/app/demo/test_terminal.py",
    "tests/app/demo/test_scenes.py",
    "tests/features/protocol/test_upstream_transports.py",
    "tests/features/protocol/test_tasks_driven.py",
    "tests/features/calls/test_results.py",
)
"""The files that take longest, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """Have `pytest-xdist` take files in the order of the tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those first; all others stay in their order."""
    places = {config.rootpath / name: place for place, name in enumerate(DEAREST)}

    def place_of(item: pytest.Item) -> int:
        return places.get(Path(item.path), len(places))

    items.sort(key=place_of)
