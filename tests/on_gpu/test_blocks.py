"""`gpu_magic.on_gpu`: what a block decides and restores, with frameworks that exist in the tests only."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import importlib.util
import sys
import types
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic import PlacementError, PlacementWarning, on_gpu
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.frameworks.target import blocks_here
from gpu_magic.objects.physical import innermost
from gpu_magic.on_gpu.scope import _left_out
from gpu_magic.testing import simulate
from tests.on_gpu.conftest import ABACUS, QUIPU
from tests.programs.threads import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_magic.frameworks.target import LogicalDevice

pytestmark = pytest.mark.usefixtures("fakes")
found: list[Any] = []  # of the last cell


def cell(code: str) -> dict[str, Any]:
    """Run code as a notebook's cell; return its variables."""
    space: dict[str, Any] = {"__name__": "__main__", "on_gpu": on_gpu, "found": found}
    found.clear()
    exec(compile(code, "<cell>", "exec"), space)
    return space


def refused(code: str) -> str:
    """Return the message of the error that a cell raises, before which it must have run nothing."""
    with pytest.raises(PlacementError) as caught:
        cell(code)
    assert found == []
    assert {sys.modules[name].made() for name in ("abacus", "quipu") if name in sys.modules} <= {"cpu"}
    assert innermost() is None
    return str(caught.value)


@pytest.mark.parametrize(
    ("code", "makes"),
    [
        ("with on_gpu(2, only='abacus') as device: found += [device, abacus.made()]", ["gpu:2", "gpu:2"]),
        ("with on_gpu(2), on_gpu('gpu:1'): found.append(abacus.made())", ["gpu:1"]),
        ("with on_gpu(2):\n    with on_gpu('cpu'): found.append(abacus.made())\n    found.append(abacus.made())",
         ["cpu:0", "gpu:2"]),
        ("import quipu\nwith on_gpu(0, only=['quipu']): found += [abacus.made(), quipu.made()]", ["cpu", "gpu:0"]),
        ("with on_gpu(2, or_cpu=True): found.append(abacus.made())", ["gpu:2"]),
        ("with on_gpu(7, or_cpu=True): found.append(abacus.made())", ["cpu:0"]),
    ],
)  # fmt: skip
def test_blocks_within_blocks_and_what_they_give(
    capsys: pytest.CaptureFixture[str], code: str, makes: list[str]
) -> None:
    cell(f"import abacus\n{code}")
    assert found == makes
    said = "Running on the CPU: cuda:7 cannot be used: Abacus has 4.\n" if "on_gpu(7" in code else ""
    assert (sys.modules["abacus"].made(), capsys.readouterr().out) == ("cpu", said)


def test_a_block_is_entered_within_itself_and_in_two_threads_and_a_function_has_its_own() -> None:
    import abacus

    block = on_gpu(1)

    @block
    def make(n: int, *, plus: int = 0) -> tuple[str, int]:
        """Make it."""
        return abacus.made(), n + plus

    def other(wait: Any) -> list[Any]:
        wait()
        before = abacus.made(), make(1, plus=2)
        with block:
            wait()
            return [*before, abacus.made()]

    def here(wait: Any) -> str:
        with block, block:
            wait()
            wait()
        return abacus.made()

    assert at_once([other], here=[here]) == [["cpu", ("gpu:1", 3), "gpu:1"], "cpu"]
    assert (make.__name__, make.__doc__) == ("make", "Make it.")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        *((f"on_gpu({one})", "does not name a device") for one in ("b'1'", "{0, 1}", "True", "print", "None")),
        ("on_gpu(1)(lambda: (yield))", "cannot decorate a coroutine"),
        ("async def later(): ...\non_gpu(1)(later)", "cannot decorate a coroutine"),
        ("class Caller:\n    async def __call__(self): ...\non_gpu(1)(Caller())", "cannot decorate a coroutine"),
        ("on_gpu(1)(int)", "is not a function"),
        ("on_gpu(1)(3)", "3 is not a function"),
        ("on_gpu(0, only=3)", "only=3 names no frameworks"),
        ("on_gpu(0, only='')", "--only needs a framework: torch"),
        ("on_gpu(0, only='jaxx')", "names no framework. Known: torch, tensorflow, jax, "),
        ("on_gpu('cpu:0,cpu:1')", "--mirror (TensorFlow), torch.nn.DataParallel"),
        ("on_gpu('cpu,0')", "A cell runs on one device. Try cpu or 0"),
        ("with on_gpu('cpu:1,cpu:2', only='abacus', mirror=True): found.append(1)", "--mirror is for"),
        ("import abacus\nwith on_gpu(4): found.append(abacus)", "cuda:4 cannot be used: Abacus has 4."),
        (
            "import abacus, quipu\nwith on_gpu(2): found += [abacus, quipu]",
            "cuda:2 cannot be used: Quipu has 1. To leave it out, add --only abacus",
        ),
        ("import quipu\nwith on_gpu(2, only='quipu'): found.append(1)", "Quipu has 1."),
        ("import quipu\nwith on_gpu(2, only='abacus quipu'): found.append(1)", "Quipu has 1."),
        ("import layers, abacus as a\nwith on_gpu(7, only='layers'): found.append(1)", "Abacus has 4."),
        ("import layers, abacus as a\nwith on_gpu(7): found.append(layers)", "Abacus has 4."),
    ],
)  # fmt: skip
def test_what_can_not_begin_says_why_and_nothing_runs(call: str, error: str) -> None:
    assert error in refused(call)


def test_a_physical_gpu_is_named_with_its_ordinal() -> None:
    with simulate("4xA100-80GB"):
        both_names = refused("import quipu\nwith on_gpu('smi:3'): found.append(quipu)")
        assert "smi:3 (cuda:3) cannot be used: Quipu has 1." in both_names
        twice = refused("with on_gpu('smi:3,cuda:3', mirror=True): found.append(1)")
        assert twice == "smi:3 and cuda:3 name cuda:3 twice."


# Imports inside


@pytest.mark.parametrize(
    "how", ["import abacus", "from abacus import made", "__import__('abacus')", "import hides_abacus"]
)
def test_a_framework_that_the_block_imports_is_set_in_all_blocks_around(how: str) -> None:
    space = cell(
        f"import sys\nwith on_gpu('cpu:2', only='abacus,quipu'):\n    with on_gpu('cpu:1'):\n        {how}\n"
        "        inner = sys.modules['abacus'].made()\n    outer = sys.modules['abacus'].made()\n"
        "spec, after = sys.modules['abacus'].__spec__, sys.modules['abacus'].made()"
    )
    assert (space["inner"], space["outer"], space["after"]) == ("cpu:1", "cpu:2", "cpu")
    assert type(space["spec"].loader).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(space["spec"].loader)


def test_one_that_can_not_run_there_is_told_at_the_end_and_its_import_is_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import abacus

    with pytest.raises(PlacementError, match="cuda:2 cannot be used: Quipu has 1"):
        cell("import abacus\nwith on_gpu(2):\n    abacus.made()\n    import quipu")
    assert sys.modules["quipu"].made() == abacus.made() == "cpu"
    del sys.modules["quipu"]
    space = cell("import abacus\nwith on_gpu(2, or_cpu=True):\n    import quipu\n    x = quipu.made()")
    assert (space["x"], capsys.readouterr().out) == ("cpu:0", "Quipu runs on the CPU: Quipu has 1.\n")


def test_an_import_that_fails_can_be_tried_again(fakes: Path) -> None:
    (fakes / "quipu.py").write_text("raise ImportError('no cord')")
    with on_gpu("cpu"):
        for _ in range(2):
            with pytest.raises(ImportError, match="no cord"):
                import quipu  # noqa: F401
            assert "quipu" not in sys.modules


class Loader:
    """One that can't be told to call back."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def create_module(self, spec: Any) -> Any:
        return self.inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.inner.exec_module(module)


@contextlib.contextmanager
def finder(find_spec: Callable[..., Any]) -> Iterator[None]:
    """Have Python ask this for modules, after the hook of a block."""
    hook = next(one for one in sys.meta_path if type(one).__name__ == "PostImportHook")
    ours: Any = types.SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(sys.meta_path.index(hook) + 1, ours)
    yield
    sys.meta_path.remove(ours)


@pytest.mark.parametrize("way", ["lazy", "thread", "slots"])
def test_an_import_that_is_not_noticed_is_told(way: str) -> None:
    """In another thread, by a lazy loader, which finds nothing of ours, or by one that can't call back."""
    block = on_gpu("cpu:1", only="abacus")
    block.__enter__()
    if way == "lazy":
        spec: Any = importlib.util.find_spec("abacus")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["abacus"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["abacus"])
    elif way == "thread":
        with ThreadPoolExecutor() as pool:
            pool.submit(__import__, "abacus").result()
    else:

        def find_spec(name: str, path: object, target: object = None) -> Any:
            spec: Any = importlib.machinery.PathFinder.find_spec(name)
            spec.loader = Loader(spec.loader)
            return spec

        with finder(find_spec):
            __import__("abacus")
    with pytest.warns(PlacementWarning, match="because another thread or an unusual loader imported it"):
        block.__exit__(None, None, None)
    module: Any = sys.modules["abacus"]
    assert module.made() == "cpu"
    assert type(module.__spec__.loader).__name__ in ("SourceFileLoader", "Loader")


@pytest.mark.parametrize("is_attached", [True, False])
def test_a_hook_calls_back_as_long_as_it_is_attached(*, is_attached: bool) -> None:
    called: list[str] = []
    hook = PostImportHook(["abacus"], called.append)
    hook.attach()
    spec: Any = importlib.util.find_spec("abacus")
    if not is_attached:
        hook.detach()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    hook.detach()
    assert called == ["abacus"] * is_attached


def test_a_block_that_ends_in_a_thread_does_not_disturb_an_import() -> None:
    """Python goes through the finders one by one: one that goes away meanwhile must not make it miss another."""
    other = on_gpu("cpu:1")
    other.__enter__()
    with finder(lambda name, *_: other.__exit__(None, None, None) if name == "hides_abacus" else None):
        import hides_abacus  # noqa: F401


def test_namesakes_are_left_alone(fakes: Path) -> None:
    (fakes / "keras.py").write_text("Model = int")
    space = cell("import abacus, keras\nwith on_gpu(1): x = abacus.made(), keras.Model")
    assert space["x"] == ("gpu:1", int)


# What fails, and what is left open


def test_a_framework_that_can_not_be_set_is_left_out_of_blocks_that_use_another_one() -> None:
    cell("import abacus, quipu")
    QUIPU.error = AttributeError("knots have moved")
    why = "Quipu cannot be set to {}: AttributeError: knots have moved."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert cell("import abacus\nwith on_gpu(0): x = abacus.made()")["x"] == "gpu:0"
    assert len(caught) == 1
    assert str(caught[0].message).startswith(why.format("cuda:0"))
    both = refused("import abacus, quipu\nwith on_gpu(0): found += [abacus, quipu]")
    assert both == f"{why.format('cuda:0')} To leave it out, add --only abacus"
    assert refused("import quipu\nwith on_gpu(0, only='quipu'): found += [quipu]") == why.format("cuda:0")
    del sys.modules["abacus"]
    assert why.format("cpu") in refused("with on_gpu('cpu'): found.append(1)")  # there is no other
    del sys.modules["quipu"]  # something else imports it
    _left_out.clear()
    hidden = "    __builtins__['__import__']('qui' + 'pu')\n    x = abacus.made()"
    with pytest.warns(PlacementWarning, match="Quipu cannot be set to cuda:0"):
        assert cell(f"import abacus\nwith on_gpu(0):\n{hidden}")["x"] == "gpu:0"


@pytest.mark.parametrize("error", [RuntimeError("the GPU is lost"), KeyboardInterrupt()])
def test_a_framework_that_cannot_count_leaves_no_block_open(error: BaseException) -> None:
    import abacus

    def work() -> dict[LogicalDevice, int]:
        raise error

    is_interrupt = isinstance(error, KeyboardInterrupt)
    ABACUS.work = work  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) if is_interrupt else contextlib.nullcontext():
        assert cell("import abacus\nwith on_gpu(1): x = abacus.made()")["x"] == "gpu:1"
    assert (abacus.made(), innermost(), blocks_here.get()) == ("cpu", None, ())
    del vars(ABACUS)["work"]
    block = on_gpu(1)
    block.__enter__()
    ABACUS.work = work  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) if is_interrupt else contextlib.nullcontext():
        block.__exit__(None, None, None)
    assert (abacus.made(), innermost(), blocks_here.get()) == ("cpu", None, ())


def test_a_block_that_fails_as_it_begins_leaves_all_as_it_was() -> None:
    import abacus

    def own_device(device: object) -> None:
        raise KeyError(abacus.made())

    ABACUS.own_device = own_device  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="gpu:1"):
        cell("import abacus\nwith on_gpu(1): found.append(abacus)")
    assert (abacus.made(), innermost()) == ("cpu", None)


def test_an_interrupt_as_a_block_begins_leaves_all_as_it_was() -> None:
    """It comes while the second of two frameworks is set."""
    cell("import abacus, quipu")
    QUIPU.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cell("with on_gpu(0, only='abacus,quipu'): found.append(1)")
    assert (found, sys.modules["abacus"].made(), innermost()) == ([], "cpu", None)


def test_the_innermost_block_is_that_of_this_thread_whichever_ends_first() -> None:
    import abacus

    first, second = on_gpu("cpu:1", only="abacus"), on_gpu("cpu:2", only="abacus")
    first.__enter__()
    second.__enter__()
    with on_gpu("cpu:1"):
        assert str(innermost()) == "cpu:1"
    assert str(innermost()) == "cpu:2"
    first.__exit__(None, None, None)  # as blocks of tasks that overlap
    assert (str(innermost()), abacus.made()) == ("cpu:2", "cpu:2")
    second.__exit__(None, None, None)
    assert (innermost(), abacus.made()) == (None, "cpu")


def test_a_block_is_left_where_it_was_not_entered_from() -> None:
    """A cell that awaits runs in a task, with a context of its own."""
    import abacus

    block = on_gpu(2)
    contextvars.copy_context().run(block.__enter__)
    assert abacus.made() == "gpu:2"
    block.__exit__(None, None, None)
    assert abacus.made() == "cpu"


def test_a_block_that_is_kept_keeps_no_variables() -> None:
    class Big:
        pass

    big: Any = Big()
    blocks, seen = [on_gpu("cpu"), on_gpu("cpu")(lambda: None)], weakref.ref(big)
    del big
    gc.collect()
    assert len(blocks) == 2
    assert seen() is None
