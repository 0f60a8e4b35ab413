"""Packages that set variables or start processes, beside a choice of `%gpus`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh, Typed


@pytest.mark.usefixtures("machine")
def test_a_file_of_variables(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """python-dotenv keeps what is set, unless it is told to replace it."""
    (tmp_path / ".env").write_text("CUDA_VISIBLE_DEVICES=1\n")
    monkeypatch.chdir(tmp_path)
    typed("%gpus 2,0\nimport os\nfrom dotenv import load_dotenv")
    assert typed("load_dotenv('.env');").text == ""
    assert typed("os.environ['CUDA_VISIBLE_DEVICES']").value == "2,0"
    replaced = typed("load_dotenv('.env', override=True);").text
    assert replaced.startswith("CUDA_VISIBLE_DEVICES=1 was set after %gpus 2,0. To restore: %gpus 2,0")
    typed("%gpus 2,0\n%gpus reset")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_workers_of_joblib_that_have_started_before_a_choice_are_named(fresh: Fresh) -> None:
    said = fresh(
        "import os, gpu_magic, gpu_magic.testing, joblib\n"
        "jobs = [joblib.delayed(os.getenv)('CUDA_VISIBLE_DEVICES') for _ in range(2)]\n"
        "with gpu_magic.testing.simulate('2xT4'):\n"
        "    print(set(joblib.Parallel(2)(jobs)))\n"
        "    print(gpu_magic.choose('1').warnings)\n"
        "    print(set(joblib.Parallel(2)(jobs)))\n"
        "    joblib.externals.loky.get_reusable_executor().shutdown()\n"
        "    print(set(joblib.Parallel(2)(jobs)))\n"
    ).splitlines()
    assert said[0] == said[2] == "{None}"
    assert "keep the earlier GPUs" in said[1]
    assert said[3] == "{'1'}"
