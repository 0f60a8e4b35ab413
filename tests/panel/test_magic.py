"""The panel where there is no notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError

import gpu_magic
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Fresh

PRIVATE_NAME = "_closed"  # comm.base_comm:BaseComm


def test_a_terminal_has_the_table(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    with simulate("2xA100-80GB"):
        shell.run_line_magic("load_ext", "gpu_magic")
        shell.run_line_magic("gpu_panel", "")
        said = capsys.readouterr().out
        assert "SIMULATED machine (2xA100-80GB)" in said
        assert said.endswith("A live panel needs a notebook. Here, choose with %gpus auto\n")
        with pytest.raises(UsageError, match="To choose by typing: %gpus 1"):
            shell.run_line_magic("gpu_panel", "1")


def test_a_terminal_has_no_kernel_to_restart(shell: InteractiveShell) -> None:
    with simulate("2xA100-80GB"):
        shell.run_line_magic("load_ext", "gpu_magic")
        shell.run_line_magic("gpus", "1 --restart")  # nothing has started, so there is no need to
        with pytest.raises(UsageError, match="Use one of the two"):
            shell.run_line_magic("gpus", "1 --restart --in-process")


def test_a_script_can_hold_a_panel(fresh: Fresh) -> None:
    said = fresh(
        """
        import threading
        import gpu_magic
        panel = gpu_magic.panel()
        print(panel)
        print([thread.name for thread in threading.enumerate()].count("gpu_magic-panel"))
        """,
        GPU_MAGIC_SIMULATE="2xA100-80GB",
    )
    assert said.startswith("SIMULATED machine (2xA100-80GB)")
    assert said.endswith("\n0\n")


def test_without_comms_private_name_a_closed_panel_counts_as_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulate("2xA100-80GB"):
        first, second = gpu_magic.panel(), gpu_magic.panel()
        first.comm.close()
        assert (first.is_open, second.is_open) == (False, True)
        for panel in first, second:
            monkeypatch.delitem(vars(panel.comm), PRIVATE_NAME)
            assert panel.is_open
            panel.tell({"what": "none"})


def test_a_simulation_that_is_not_understood(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xNONSENSE")
    shell.run_line_magic("load_ext", "gpu_magic")
    with pytest.raises(UsageError, match="NONSENSE"):
        shell.run_line_magic("gpu_panel", "")
