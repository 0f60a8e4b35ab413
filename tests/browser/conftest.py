"""The front end that all tests here share, on a machine whose driver libraries are the pretend ones."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.testing import Machine, simulate
from tests.browser import lab as front_end
from tests.browser.standalone import BarePages, LivePanel
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if front_end.find_chromium() is None:
        pytest.fail(front_end.NO_CHROMIUM) if os.environ.get("CI") else pytest.skip(front_end.NO_CHROMIUM)
    with front_end.chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def pages(chromium: Browser) -> BarePages:
    return BarePages(chromium)


@pytest.fixture
def bare(pages: BarePages) -> Iterator[BarePages]:
    """Return what opens panels in bare pages; their scripts have no error."""
    pages.complaints.clear()
    yield pages
    pages.close()
    assert not pages.complaints


@pytest.fixture
def live(bare: BarePages) -> Iterator[Callable[..., LivePanel]]:
    """Return what opens a panel in a bare page, with a simulated machine and a kernel's part in this process.

    The machine can be prepared by a function; `mask` is what the kernel was given.
    """
    with ExitStack() as opened:

        def start(
            profile: str = "4xA100-80GB",
            prepare: Callable[[Machine], object] = lambda _: None,
            *,
            mask: str | None = None,
            **how: Any,
        ) -> LivePanel:
            machine = opened.enter_context(simulate(profile, mask=mask, clock=0))
            prepare(machine)
            panel = LivePanel(bare, machine, **how)
            opened.callback(panel.close)
            return panel

        yield start


@pytest.fixture(scope="session")
def server(native: Path, tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Lab]:
    """Start the one Jupyter server of this run of the tests."""
    home = tmp_path_factory.mktemp("jupyter")
    Driver(CARDS).write(home / "machine")
    with front_end.start_lab(home, chromium, environment(native, home / "machine")) as lab:
        yield lab


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which tests fail."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def lab(server: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Return the server, with the machine as it is at first; after the test, no page has complained.

    Tests share a page, each with a notebook of its own and a new kernel. A test that fails takes the page with it.
    """
    server.shares_page = True
    server.change_machine(Driver(CARDS))
    server.complaints.clear()
    server.harmless[:] = front_end.HARMLESS
    yield server
    has_failed = request.node.stash.get(FAILED, False) or bool(server.complaints)
    server.close_pages(keep_shared=not has_failed)
    for kernel in json.loads(server.request("api/kernels")):
        server.request(f"api/kernels/{kernel['id']}", "DELETE")
    for kept in (server.root.parent / "runtime" / "gpu_magic").glob("*"):
        kept.unlink()
    assert not server.complaints, server.complaints
