"""Who restarts the kernel, and when: a page that says that it can, else the kernel itself. Time passes as told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Fresh

PROGRAM = """
import asyncio
from types import SimpleNamespace
from gpu_magic.restart import restart

class Loop(asyncio.SelectorEventLoop):
    now = 0.0
    def time(self):
        return self.now

loop, done = Loop(), []
kernel = SimpleNamespace(do_shutdown=lambda restart: done.append(round(loop.now)))

async def call_what_is_due():
    for _ in range(4):
        await asyncio.sleep(0)

async def go_on(seconds, act=lambda: None):
    act()
    for _ in range(seconds):
        loop.now += 1
        await call_what_is_due()
    await call_what_is_due()

begin = lambda: restart.begin(SimpleNamespace(kernel=kernel), lambda kernel, page: None)
loop.run_until_complete(go_on(2, begin))
for page, can in {answers}:
    loop.run_until_complete(go_on(0, lambda: restart.answer(page, can=can)))
loop.run_until_complete(go_on(60))
print(*done)
"""


@pytest.mark.parametrize(
    ("answers", "at"),
    [
        ([], "3"),  # no page answers
        ([("one", True)], "14"),  # a page has twelve seconds from its answer on
        ([("one", True), ("other", True), ("other", False)], "14"),
        ([("one", True), ("one", False)], "2"),  # it could not
    ],
)
def test_the_kernel_restarts_itself_once_and_only_if_no_page_does(
    fresh: Fresh, answers: list[tuple[str, bool]], at: str
) -> None:
    assert fresh(PROGRAM.format(answers=answers)) == f"{at}\n"
