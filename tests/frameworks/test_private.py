"""Each private name taken away in turn: the public way takes over, or one line says what is lost."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from gpu_magic.frameworks.private import PRIVATE
from tests.conftest import torch_build

if TYPE_CHECKING:
    from tests.programs.runner import Runner

# Those that a step is predicted with are tried in tests/fit, those of a move in tests/move. PyTorch's own context needs three: without them
# there is none, of ours or of PyTorch's.
_OF_ITS_CONTEXT = ("DeviceContext", "CURRENT_DEVICE", "_device_constructors")
# Nor can TensorFlow do without its context.
_OF_TENSORFLOW = [name for name in sorted(PRIVATE) if re.match("tensorflow.*:(Context.|Physical)", name)]
NAMES = [
    name
    for name in sorted(PRIVATE)
    if name.startswith("torch")
    and not re.search("%gpu_fit|%to_gpu", PRIVATE[name][1])
    and not name.endswith(_OF_ITS_CONTEXT)
]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_private_name_blocks_and_figures_hold(run: Runner, name: str) -> None:
    found = run("private_names.without", name)
    assert found["inside"] == [["pretend:2", 2], ["cpu", 3], ["pretend:1", 1]]
    assert found["outside"] == ["cpu", 0]
    is_of_sparse = name.startswith("torch:Tensor")
    assert found["bytes"] == ([0, 24] if is_of_sparse else [24, 24])
    assert len(found["warned"]) == (0 if is_of_sparse else 1)
    assert all(text.startswith(f"PyTorch {version('torch').partition('+')[0]}") for text in found["warned"])


@pytest.mark.parametrize("name", _OF_TENSORFLOW)
def test_without_a_private_name_of_tensorflow_one_line_says_what_is_lost(run: Runner, name: str) -> None:
    found = run("private_names_tensorflow.without", name)
    assert (found["started"], len(found["warned"])) == ([], "a warning says so" in PRIVATE[name][1])
    assert all(text.startswith("TensorFlow") for text in found["warned"])


def test_what_older_versions_do_not_tell_is_said_once(run: Runner) -> None:
    *found, said = run("private_names.older_versions")
    assert found == [[{}, {}], None, [False, False]]
    assert len(said) == 2
    assert said[0].startswith(f"PyTorch {torch_build()[0]} does not count its memory on pretend (")
