"""What is said of a choice that may have no effect: here, in processes that multiprocessing starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

CHILDREN = """
    import multiprocessing, os, sys
    import gpu_magic
    if __name__ == "__main__":
        gpu_magic.choose("1,3")
        started = multiprocessing.get_context(sys.argv[1])
        for _ in range(2):
            with started.Pool(1) as pool:
                print(pool.apply(os.getenv, ["CUDA_VISIBLE_DEVICES"]))
            print("fork server" in str(gpu_magic.choose("2")))
"""


def run(fresh: Fresh, folder: Path, method: str) -> list[str]:
    (folder / "children.py").write_text("\n".join(line[4:] for line in CHILDREN.splitlines()))
    return fresh(
        f"import runpy, sys; sys.argv = ['children.py', {method!r}]; "
        f"runpy.run_path({str(folder / 'children.py')!r}, run_name='__main__')",
        GPU_MAGIC_SIMULATE="4xA100-80GB",
        GPU_MAGIC_CLAIMS="off",
    ).splitlines()


def test_a_fork_server_that_was_started_before_is_named(fresh: Fresh, tmp_path: Path) -> None:
    # The same choice again changes nothing.
    assert run(fresh, tmp_path, "forkserver") == ["1,3", "True", "1,3", "False"]


def test_spawned_processes_have_the_latest_choice(fresh: Fresh, tmp_path: Path) -> None:
    assert run(fresh, tmp_path, "spawn") == ["1,3", "False", "2", "False"]
