"""The faces: what users type, each a small program on a `Stage`. Their docstrings are the page's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reliability.stage import cuda_sees

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reliability.stage import Stage

__all__ = ["FACES"]


def table(stage: Stage) -> None:
    """`%gpus`"""
    stage.type("%gpus")


def choose(stage: Stage) -> None:
    """`%gpus 1,3`, `%gpus 2`, `%gpus auto`, `%gpus reset`"""
    stage.type("%gpus 1,3", asks=(1, 3))
    if stage.is_alone:
        stage.type("%gpus 2", asks=(2,))
    stage.type("%gpus auto", asks=1)
    stage.type("%gpus reset", asks="reset")


def panel(stage: Stage) -> None:
    """`%gpu_panel`, a click on GPU 2 and on "Use these", `%gpus reset`"""
    stage.open_panel()
    stage.click({"type": "look", "view": "v", "visibility": "watched", "open": []})
    stage.click({"type": "choose", "request": "2", "restart": False, "page": "p"}, asks=(2,))
    stage.close_panel()
    stage.type("%gpus reset", asks="reset")


def run(stage: Stage) -> None:
    """`%%on_gpu 0` with an operation of PyTorch"""
    stage.type("%%on_gpu 0\ntorch.ones(1).add_(1)")


def move(stage: Stage) -> None:
    """`%to_gpu x batch`, `%where`, `%to_cpu x batch`"""
    stage.type("%to_gpu x batch")
    stage.type("%where")
    stage.type("%to_cpu x batch")


def launch(stage: Stage) -> None:
    """`%gpu_launch --gpus 3 sh -c 'echo $CUDA_VISIBLE_DEVICES'`, and a cell as a script"""
    stage.type("%gpu_launch --gpus 3 sh -c 'echo sees $CUDA_VISIBLE_DEVICES'")
    stage.type("%%gpu_launch --gpus 3 python\nprint('number', 6 * 7)")


def cluster(stage: Stage) -> None:
    """`%gpu_cluster 3`, a cell with `%%px`, `%gpu_cluster stop`"""
    stage.type("%gpu_cluster 3")
    stage.type("%%px --no-stream\nimport os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])")
    stage.type("%gpu_cluster stop")


def wait(stage: Stage) -> None:
    """`%gpus auto --wait 1s`, `%gpus 1 --wait 1s`, `%gpus reset`"""
    stage.type("%gpus auto --wait 1s", asks=1)
    stage.type("%gpus 1 --wait 1s", asks=(1,))
    stage.type("%gpus reset", asks="reset")


def usage(stage: Stage) -> None:
    """`%%gpu_time`, `%gpu_time report`"""
    stage.type("%%gpu_time\nsum(range(100_000))")
    stage.type("%gpu_time report")


def guard(stage: Stage) -> None:
    """`gpu_magic.guard()`; once CUDA is started, `%gpus 2` as well"""
    stage.type("print(gpu_magic.guard())")
    if stage.is_last:  # CUDA can be started once
        stage.type("%gpus 3", asks=(3,))
        has_cuda = isinstance(cuda_sees(stage.now.environment), list)
        stage.kernel.run("import ctypes\ntry: ctypes.CDLL('libcuda.so.1').cuInit(0)\nexcept OSError: pass")
        stage.type("print(gpu_magic.guard())")
        stage.type("%gpus 2", asks=() if has_cuda else (2,))


# The guard's is the last, as its CUDA stays started.
FACES: dict[str, Callable[[Stage], None]] = {
    face.__name__: face for face in (table, choose, panel, run, move, launch, cluster, wait, usage, guard)
}
