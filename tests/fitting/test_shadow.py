"""Copies of what a step uses: the user's own objects and functions are not touched, and stay tied together."""

from __future__ import annotations

import functools
import io
import threading
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.objects import SHARED, Shadow

if TYPE_CHECKING:
    from pathlib import Path


class Leaf:
    """What a tensor is for PyTorch: it is replaced by another one."""


class Replaced(Leaf):
    pass


def shadow() -> Shadow:
    return Shadow(lambda obj: Replaced() if type(obj) is Leaf else None)


@dataclass
class Part:
    leaf: Leaf
    names: list[str] = field(default_factory=list)


class Slotted:
    __slots__ = ("__hidden", "leaf")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf, self.__hidden = leaf, leaf

    def both(self) -> tuple[Leaf, Leaf]:
        return self.leaf, self.__hidden


Pair = namedtuple("Pair", "one other")  # noqa: PYI024 - it is one of the things that people write


class Counts(dict[str, int]):
    """A dict with an attribute."""

    leaf: Any = None


class Base:
    def value(self) -> object:
        return self.held  # type: ignore[attr-defined]


class Derived(Base):
    made = 0

    def __init__(self, held: object) -> None:
        self.held = held
        type(self).made += 1

    def value(self) -> object:
        return super().value()

    @property
    def shown(self) -> object:
        return self.value()

    @classmethod
    def count(cls) -> int:
        return cls.made

    @staticmethod
    def global_leaf() -> Leaf:
        return leaf


leaf = Leaf()
numbers = [1, 2]


def reads_global() -> Leaf:
    return leaf


def calls_another() -> Leaf:
    numbers.append(3)
    return reads_global()


def writes_global() -> None:
    global leaf  # noqa: PLW0603 - as notebooks do
    leaf = Leaf()


def test_what_is_one_stays_one() -> None:
    part = Part(leaf, ["a"])
    things: dict[str, Any] = {"part": part, "list": [part, leaf], "deque": deque([leaf], maxlen=2)}
    things["itself"] = things
    copy = shadow().copy(things)
    assert copy["itself"] is copy
    assert copy["list"][0] is copy["part"]
    assert type(copy["part"].leaf) is Replaced
    assert copy["part"].leaf is copy["list"][1] is copy["deque"][0]
    assert copy["deque"].maxlen == 2
    copy["part"].names.append("b")
    assert part.names == ["a"]
    assert part.leaf is leaf


def test_containers_keep_their_kind() -> None:
    things = (
        Pair(leaf, 1),
        Counts(a=1),
        defaultdict(list, {"x": [leaf]}),
        OrderedDict([("b", leaf), ("a", leaf)]),
        {leaf},
        frozenset([leaf]),
        Slotted(leaf),
    )
    things[1].leaf = leaf
    copy = shadow().copy(things)
    assert [type(one).__name__ for one in copy] == [type(one).__name__ for one in things]
    new = copy[0].one
    assert type(new) is Replaced
    assert copy[1].leaf is new
    assert copy[1] == {"a": 1}
    assert copy[2]["x"] == [new]
    assert copy[2]["y"] == []
    assert list(copy[3].items()) == [("b", new), ("a", new)]
    assert copy[4] == copy[5] == {new}
    assert copy[6].both() == (new, new)


def test_what_holds_nothing_is_shared() -> None:
    lock, plain, words = threading.Lock(), (1, "a"), frozenset()
    copy = shadow().copy
    assert copy(lock) is lock
    assert copy(plain) is plain
    assert copy(len) is len
    assert copy(np.add) is np.add
    assert copy(words) == words
    assert Shadow(lambda obj: SHARED).copy(numbers) is numbers


def test_arrays_of_numpy_can_be_read_and_not_written() -> None:
    array = np.zeros(4)
    copy = shadow().copy([array])[0]
    assert np.shares_memory(copy, array)
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 1


def test_functions_see_copies_of_global_variables() -> None:
    copy = shadow()
    new = copy.copy(calls_another)()
    assert type(new) is Replaced
    assert new is copy.copy(leaf)
    assert numbers == [1, 2]
    assert calls_another.__globals__ is globals()


def test_functions_write_to_copies_of_global_variables() -> None:
    before, copy = leaf, shadow()
    first = copy.copy(reads_global)()
    copy.copy(writes_global)()
    assert leaf is before
    assert copy.copy(reads_global)() is not first  # what one function writes, the others read


def test_closures_defaults_and_methods_of_builtins() -> None:
    held = [leaf]

    def outer(extra: Any = held) -> Any:
        held.append(extra)
        return inner

    def inner() -> Any:
        return held[0], outer

    copy = shadow()
    new_outer = copy.copy(outer)
    leaf_in, again = new_outer()()
    assert type(leaf_in) is Replaced
    assert again is new_outer
    assert held == [leaf]
    assert new_outer.__defaults__[0] is copy.copy(held)
    append = copy.copy(held.append)
    append(1)
    assert held == [leaf]
    assert copy.copy(functools.partial(outer, 1)).args == (1,)


def test_classes_of_the_user_s_see_copies_too() -> None:
    derived, copy = Derived(leaf), shadow()
    made = Derived.made
    new = copy.copy(derived)
    assert type(new).__name__ == "Derived"
    assert type(new) is not Derived
    assert type(new.value()) is Replaced  # which says super()
    assert new.shown is new.value()
    assert new.global_leaf() is new.value()
    type(new)(1)
    assert type(new).count() == made + 1
    assert Derived.made == made
    assert copy.copy(derived.value)() is new.value()


def test_objects_of_one_class_stay_of_one_class() -> None:
    one, other, pair, second = shadow().copy([Derived(leaf), Derived(1), Pair(leaf, 1), Pair(leaf, 2)])
    assert type(one) is type(other)
    assert type(pair) is type(second)


def test_a_file_that_is_written_to_is_swallowed_and_one_in_memory_copied(tmp_path: Path) -> None:
    in_memory = io.StringIO("before")
    with (tmp_path / "log.txt").open("w") as log:
        file, other = shadow().copy([log, in_memory])
        print("a line", file=file, flush=True)
        with file:
            file.writelines(["more"])
        with pytest.raises(NotFollowed, match=r"reads the open file .*, or moves in it: read it before"):
            file.seek(0)
        assert not log.closed
    other.write("after")
    assert (other.getvalue(), in_memory.getvalue()) == ("aftere", "before")
    assert (tmp_path / "log.txt").read_text() == ""


def test_references_that_keep_nothing_alive() -> None:
    part, copy = Part(leaf), shadow()
    reference = copy.copy([weakref.ref(part), part])
    assert reference[0]() is reference[1]


def test_iterators_are_refused() -> None:
    for one in (iter([1]), (x for x in numbers), enumerate(numbers)):
        with pytest.raises(NotFollowed, match="can't be copied and would be advanced"):
            shadow().copy({"it": one})


def test_an_object_that_can_not_be_copied_by_itself_can_be_here() -> None:
    class Stubborn:
        def __init__(self) -> None:
            self.lock, self.leaf = threading.Lock(), leaf

        def __deepcopy__(self, memo: object) -> object:
            raise TypeError

        def __reduce_ex__(self, protocol: object) -> Any:
            raise TypeError

    new = shadow().copy(Stubborn())
    assert type(new.leaf) is Replaced
