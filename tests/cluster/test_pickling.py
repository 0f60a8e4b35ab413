"""Functions that go to another process, as any cloudpickle writes them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from gpu_magic.cluster.pickling import pickled

if TYPE_CHECKING:
    from collections.abc import Callable


def test_functions_keep_the_names_of_their_files() -> None:
    """Tracebacks there find the lines of cells by these; cloudpickle 3.1.3 calls all files `<dynamic-code>`."""
    names: dict[str, Callable[[], Callable[[], int]]] = {}
    exec(compile("def outer():\n    return lambda: 1\n", "/tmp/ipykernel_1/77.py", "exec"), names)
    one = pickled("outer", (names["outer"], names["outer"]))
    first, second = pickle.loads(one.text)
    assert first is second
    assert first.__code__.co_filename == first().__code__.co_filename == "/tmp/ipykernel_1/77.py"
    assert (first()(), first.__code__) == (1, names["outer"].__code__)
    assert one.files == {"/tmp/ipykernel_1/77.py"}
