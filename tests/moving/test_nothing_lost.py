"""What was found to be lost, or left behind without a word, when things are moved; each failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.moving.test_pytorch import START
from tests.placement.test_on_gpu import JAX, run  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.placement.test_on_gpu import Run


def test_ordered_dicts_stay_whole_also_beside_jax(run: Run) -> None:  # noqa: F811
    assert run(
        START + "import jax\n",
        """
        key, x = torch.ones(2), torch.zeros(1)
        od = collections.OrderedDict([(key, 1), ("a", x), ("b", 2)])
        dd = collections.defaultdict(list, {"x": x})
        state = nn.BatchNorm1d(2).state_dict()
        loop = collections.OrderedDict(x=x)
        loop["self"] = loop
        for thing in (od, dd, state, loop):
            assert to_gpu(thing, 0) is thing
        print([type(one).__name__ for one in od], list(od.values())[0::2], od["a"].device, dd["new"], dd["x"].device)
        print("version" in state._metadata[""], loop["self"] is loop, loop["x"].device)
        """,
    ) == ["['Tensor', 'str', 'str'] [1, 2] pretend:0 [] pretend:0", "True True pretend:0"]


def test_each_step_is_undone_whatever_another_one_raises(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        from gpu_magic.moving.move import Move
        from gpu_magic.moving.destination import read_destination
        from gpu_magic.moving.names import Names

        class Odd:
            @property
            def t(self):
                return self._t
        odd, y, model = Odd(), torch.ones(2), nn.Linear(2, 2)
        odd._t = torch.ones(3)
        space = {"odd": odd, "y": y, "model": model, "box": [y]}
        names = Names(space, ())
        move = Move(read_destination("0"))
        for name, value in names.read("model box y odd.t").items():
            move.add(name, value)
        print(error(move.carry_out, names))
        print(model.weight.device, space["y"] is y, space["box"][0] is y, odd.t.device)
        """,
    ) == [
        "Moving to pretend:0 failed, and all is as it was: AttributeError: property 't' of 'Odd' object has no setter",
        "cpu True True cpu",
    ]


def test_an_interrupt_while_things_are_put_in_place_is_undone(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        import os, signal
        from gpu_magic.moving.move import Move
        from gpu_magic.moving.names import Names
        from gpu_magic.moving.destination import read_destination

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored

        class Odd:
            _t = torch.ones(3)
            @property
            def t(self):
                return self._t
            @t.setter
            def t(self, value):
                os.kill(os.getpid(), signal.SIGINT)
                self._t = value
        space = {"odd": Odd(), "model": nn.Linear(2, 2), "x": torch.ones(2)}
        names, move = Names(space, ()), Move(read_destination("0"))
        for name, value in names.read("model odd.t x").items():
            move.add(name, value)
        try:
            move.carry_out(names)
        except KeyboardInterrupt:
            print("interrupted", space["model"].weight.device, space["odd"].t.device, space["x"].device, allocated(0))
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """,
    ) == ["interrupted cpu cpu cpu 0", "True"]


def test_objects_that_move_themselves_are_told_to_go_back(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        class Pipeline:
            __module__ = "torch"  # another package's
            def __init__(self):
                self.model, self.d = nn.Linear(2, 2), {"x": torch.ones(2)}
            def to(self, device):
                self.model.to(device)
                for name in self.d:
                    self.d[name] = self.d[name].to(device)
                return self
        class Bad(Pipeline):
            __module__ = "torch"
            def to(self, device):
                raise ValueError("no way")
        one, bad = Pipeline(), Bad()
        print(error(to_gpu, [one, bad], 0))
        print(one.model.weight.device, one.d["x"].device, allocated(0))
        print(to_gpu([one], 0)[0] is one, one.model.weight.device, one.d["x"].device)
        class Mine(Pipeline):  # the user's own is looked into, so that what it holds stays tied
            pass
        mine, x = Mine(), torch.ones(3)
        mine.d["x"] = x
        mine, x = to_gpu((mine, x), 1)
        print(mine.d["x"] is x, mine.model.weight.device)
        """,
    ) == [
        "Moving to pretend:0 failed, and all is as it was: ValueError: no way",
        "cpu cpu 0",
        "True pretend:0 pretend:0",
        "True pretend:1",
    ]


def test_views_of_another_dtype_keep_their_numbers(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        p = nn.Parameter(torch.arange(8.0).view(4, 2))
        c = torch.view_as_complex(p)
        p, moved = to_gpu((p, c), 0)
        print(moved.dtype, torch.view_as_real(moved.detach()).tolist() == p.tolist())
        """,
    ) == ["torch.complex64 True"]


def test_gradients_and_states_of_plain_tensors(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        x = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.Adam([x])
        x.sum().backward()
        optimizer.step()
        x.requires_grad_(False)
        x, optimizer = to_gpu((x, optimizer), 0)
        print(optimizer.param_groups[0]["params"][0] is x, x in optimizer.state, optimizer.state[x]["exp_avg"].device)
        print(x.grad.device, gpu_magic.devices_of(x)["pretend:0"])
        print(error(to_gpu, torch.jit.script(nn.Linear(2, 2)), 0))
        gone = torch.ones(100)
        gone.untyped_storage().resize_(0)
        print(error(to_gpu, gone, 0), gone.untyped_storage().nbytes())
        """,
    ) == [
        "True True pretend:0",
        "pretend:0 24",
        "A scripted module has its tensors out of Python's sight: use its own .to(device).",
        "A Tensor of shape (100,) has no memory at present (its storage was resized). 0",
    ]


def test_odd_numpy_arrays(run: Run) -> None:  # noqa: F811
    assert run(
        START + "import numpy as np\n",
        """
        print(to_gpu(np.arange(3)[::-1], 0, numpy="torch").tolist(), to_gpu(np.ones(2, ">f4"), 0, numpy="torch").dtype)
        fixed = np.ones(2)
        fixed.flags.writeable = False
        print(to_gpu(fixed, 0, numpy="torch").device)
        masked = {"a": np.ma.array([1.0, 2.0], mask=[0, 1]), "t": torch.ones(1)}
        print(type(to_gpu(masked, 0, numpy="torch")["a"]).__name__)
        print(error(to_gpu, np.ones(2, np.longdouble), 0, numpy="torch"))
        print(error(to_gpu, np.array(["a"]), 0, numpy="torch"))
        """,
    ) == [
        "[2, 1, 0] torch.float32",
        "pretend:0",
        "MaskedArray",
        "PyTorch has no tensors of NumPy's float128.",
        "it is NumPy's, and no framework has arrays of <U1.",
    ]


def test_jax_says_what_it_would_lose_and_is_not_started_by_a_plan(run: Run) -> None:  # noqa: F811
    assert run(
        JAX + "import numpy as np\nfrom gpu_magic import to_gpu\n",
        """
        from gpu_magic.frameworks.jax import FRAMEWORK
        from gpu_magic.moving.move import Move
        from gpu_magic.moving.destination import read_destination
        move = Move(read_destination("cpu:1"), "jax")
        move.add("a", np.ones(2, np.float32))
        print(move.nbytes, FRAMEWORK.is_started())
        print(error(to_gpu, np.ones(2), "cpu:1", numpy="jax"))

        @jax.tree_util.register_pytree_node_class
        class Counted:  # the user's own, which forgets its count in JAX's hands
            def __init__(self, x): self.x, self.count = x, 7
            def tree_flatten(self): return (self.x,), None
            @classmethod
            def tree_unflatten(cls, _, children):
                made = cls(*children)
                made.count = 0
                return made
        counted = Counted(jnp.ones(2))
        print(to_gpu(counted, "cpu:2") is counted, counted.count, counted.x.devices())
        """,
    ) == [
        "8 False",
        'JAX would make float32 of float64, as jax_enable_x64 is not set: convert it yourself, with .astype("float32").',
        "True 7 {CpuDevice(id=2)}",
    ]


def test_what_another_thread_writes_meanwhile_is_kept(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        class Log:
            pass
        class Slow:
            __module__ = "torch"
            def __init__(self):
                self.x = torch.ones(1)
            def to(self, device):  # stands for a copy that takes its time
                log.n = 5
                log.items.append("new")
                log.d["k"] = 2
                self.x = self.x.to(device)
        log, slow = Log(), Slow()
        log.n, log.items, log.d = 0, [torch.ones(2)], {"k": 1, "t": torch.ones(2)}
        to_gpu([log, slow], 0)
        print(log.n, log.items[1:], log.d["k"], log.items[0].device, log.d["t"].device)
        """,
    ) == ["5 ['new'] 2 pretend:0 pretend:0"]


def test_nothing_is_kept_alive(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        import weakref
        def look():
            class Net:
                def __init__(self):
                    self.x = torch.ones(2)
            net = Net()
            to_gpu(net, 0)
            gpu_magic.devices_of(net)
            return weakref.ref(Net)
        kind = look()
        gc.collect()
        print(kind() is None)
        gc.disable()  # what is not wanted any more goes at once
        x = torch.ones(1 << 20, device="pretend:1")
        x = to_cpu(x)
        print(torch.accelerator.memory_allocated(1), x.device)
        """,
    ) == ["True", "0 cpu"]


def test_what_is_called_wrongly(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters())
        print(error(to_gpu, model, optimizer))
        print(error(to_gpu, "model"))
        print(to_gpu(model, torch.device("pretend:1")).weight.device)
        import numpy as np
        print(to_gpu(model, np.int64(3)).weight.device, gpu_magic.gpu_free().after["pretend:3"] > 0)
        with gpu_magic.on_gpu(2):
            print(to_gpu(model).weight.device)
        print(to_gpu(model).weight.device)
        """,
    ) == [
        "to_gpu moves one thing, and behind it stands the device, not a SGD: to_gpu((model, optimizer), 1) moves several.",
        "to_gpu moves a variable, and 'model' is a text: leave the quotes away.",
        "pretend:1",
        "pretend:3 True",
        "pretend:2",
        "pretend:0",
    ]
