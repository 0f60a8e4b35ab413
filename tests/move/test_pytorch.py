"""`gpu_magic.to_gpu` on PyTorch's pretend accelerator, each program in a process of its own.

What is asked is PyTorch's own: where a tensor is, which storage it has, what its allocator holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


# Models and their training


@pytest.mark.parametrize("like_cuda", [True, False], ids=["like CUDA", "where tensors are swapped"])
@pytest.mark.parametrize("kind", ["transformer", "convnet"])
def test_training_goes_on_bit_for_bit(run: Runner, kind: str, like_cuda: bool) -> None:
    """Trained, moved, trained, moved elsewhere, trained, moved back, trained: the losses of one never moved."""
    found = run("moving_training.training", kind, like_cuda)
    assert [move["to"] for move in found["moves"]] == [["pretend:0"], ["pretend:2"], ["cpu"]]
    for move in found["moves"]:
        assert move == {
            "to": move["to"],
            "averages": move["to"],
            "steps": ["cpu"],
            "gradients are equal": True,
            "scheduler has its optimizer": True,
            "strides are equal": True,
        }
    losses = found["losses"]
    assert losses["moved"] == losses["stayed"]
    assert len(set(losses["stayed"])) == 7
    assert found["parameters are the same objects"]
    assert found["optimizer has them"]
    assert found["left behind"] == [0, 0]
    if kind == "transformer":
        assert found["weights are tied"]
        assert found["plain attribute"] == "cpu"


def test_a_failure_at_any_allocation_changes_nothing(run: Runner) -> None:
    found = run("moving_training.failures")
    assert found["changed something"] == []
    assert found["errors"] == ["pretend:1 ran out of memory"]
    assert found["allocations"] > 100
    assert found["tuple that was given"] == "cpu"
    assert found["after the one that succeeded"] == ["pretend:1", "pretend:1"]


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("Adam", {"amsgrad": True}),
    ("LBFGS", {"lr": 0.1}),
    ("Adagrad", {}),
    ("Rprop", {}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=[kind for kind, _ in OPTIMIZERS])
def test_an_optimizer_goes_on_as_one_that_stayed(run: Runner, kind: str, options: dict[str, Any]) -> None:
    found = run("moving_torch.optimizer", kind, options)
    assert found["loss"] == found["loss of one that stayed"]
    assert found["device"] == "pretend:1"


def test_an_optimizer_that_is_capturable_has_all_of_its_state_there(run: Runner) -> None:
    assert run("moving_torch.capturable_optimizer") == {
        "state": {"step": "pretend:0", "exp_avg": "pretend:0"},
        "learning rate": "pretend:0",
    }


def test_an_optimizer_brings_the_parameters_that_are_its(run: Runner) -> None:
    assert run("moving_torch.optimizer_alone") == ["pretend:0", "pretend:0"]


# What is tied stays tied


def test_views_stay_views_of_one_storage(run: Runner) -> None:
    found = run("moving_torch.views")
    assert found["one thing is one"]
    assert found["storages"] == 1
    assert found["devices"] == ["pretend:1"]
    assert found["strides"] == found["strides before"]
    assert found["are equal"] == [True] * 5
    assert found["column, after a fill"] == [7, 7, 7, 7]
    assert found["original"] == [0, "cpu"]


def test_a_part_of_a_big_tensor_is_moved_without_the_rest(run: Runner) -> None:
    assert run("moving_torch.part_of_a_big_one") == {"allocated": 12, "part": [0, 0, 0]}


def test_an_expanded_tensor_stays_expanded(run: Runner) -> None:
    assert run("moving_torch.expanded") == {"stride": [1, 0], "allocated": 12}


def test_channels_last_stay_last(run: Runner) -> None:
    assert run("moving_torch.channels_last") is True


def test_complex_numbers_and_their_conjugates(run: Runner) -> None:
    assert run("moving_torch.complex_numbers") == {
        "is conjugate": True,
        "conjugate is equal": True,
        "imaginary part is equal": True,
    }


def test_an_empty_tensor_and_a_scalar(run: Runner) -> None:
    assert run("moving_torch.empty_and_scalar") == {"shape": [0, 3], "item": 5}


def test_sparse_tensors_keep_their_ties(run: Runner) -> None:
    found = run("moving_torch.sparse_tensors")
    assert found["back again"] == found["before"]
    del found["back again"], found["before"]
    assert found == {
        "one thing is one": True,
        "device": "pretend:0",
        "is coalesced": False,
        "values": [1, 2],
        "indices": [[0, 2], [1, 0]],
    }


# Leaves and graphs


def test_a_leaf_is_the_same_tensor_and_its_view_s_gradient_goes_to_it(run: Runner) -> None:
    assert run("moving_torch.leaf_and_its_view") == {
        "is the same": True,
        "is a leaf": [True, True],
        "devices": ["pretend:0", "pretend:0"],
        "label": "mine",
        "gradient": [[0, 2, 4], [6, 8, 10]],
        "old gradient": "cpu",
        "view is its": True,
        "gradient after the view's": [[0, 2, 4], [7, 9, 11]],
        "hook heard": ["pretend"],
    }


def test_a_frozen_parameter_stays_frozen(run: Runner) -> None:
    assert run("moving_torch.frozen_parameter") == {
        "is the same": True,
        "device": "pretend:0",
        "requires_grad": False,
    }


def test_what_was_computed_keeps_its_graph(run: Runner) -> None:
    assert run("moving_torch.computed") is True


def test_a_tensor_of_inference_mode(run: Runner) -> None:
    assert run("moving_torch.inference") == "pretend:0"


def test_buffers_stay_buffers(run: Runner) -> None:
    assert run("moving_torch.buffers") == {"training": False, "device": "pretend:0", "requires_grad": False}


def test_a_lazy_module_gets_its_weights_there(run: Runner) -> None:
    assert run("moving_torch.lazy_module") == ["pretend:0", "pretend:0"]


def test_an_lstm_keeps_its_flat_weights_and_computes_the_same_once_it_is_back(run: Runner) -> None:
    found = run("moving_torch.lstm")
    assert found["flat weight is its weight"]
    assert found["device"] == "pretend:1"
    assert found["back again"] == found["before"]


def test_a_graph_that_is_still_there_is_no_hindrance_where_cuda_has_none(run: Runner) -> None:
    """A notebook's `loss` keeps the graph of the last step."""
    assert run("moving_torch.graph_of_the_last_step") == {"device": "pretend:0", "gradient": 2}


def test_a_weak_reference_is_a_hindrance_where_tensors_are_swapped(run: Runner) -> None:
    assert run("moving_torch.weakly_referenced_where_tensors_are_swapped") == {
        "error": "A Parameter of shape (8, 2) can't be moved to pretend:0: a graph, a hook or a weak reference holds "
        "on to it. Delete what was computed with it (a loss, outputs), and try again. Nothing was changed.",
        "device": "cpu",
    }


# Containers


def test_containers_of_all_kinds(run: Runner) -> None:
    found = run("moving_containers.one_tensor_in_all_of_them")
    assert found["list is the same"]
    assert found["types that have changed"] == []
    assert found["device"] == "pretend:3"
    assert found["devices"] == {"pretend:3": 24}
    assert len(found["is the new tensor"]) == 13
    for name, are_new in found["is the new tensor"].items():
        assert set(are_new) == {True}, name
    assert found["keys of the OrderedDict"] == ["b", "a"]
    assert found["move themselves"] == {
        "result of max": "pretend:3",
        "makes a new one": "pretend:3",
        "moves itself": "pretend:3",
    }


def test_a_packed_sequence_has_its_sizes_on_the_cpu(run: Runner) -> None:
    assert run("moving_containers.packed_sequence") == ["PackedSequence", "pretend:0", "cpu"]


def test_a_loop_stays_a_loop(run: Runner) -> None:
    assert run("moving_containers.loop") == {"is tied": [True, True], "device": "pretend:0"}


def test_any_depth_will_do(run: Runner) -> None:
    assert run("moving_containers.deep") == "pretend:0"


def test_a_failure_while_things_are_put_in_place_is_undone(run: Runner) -> None:
    assert run("moving_containers.one_that_can_not_be_copied") == {
        "error": "Moving to pretend:0 failed, and all is as it was: RuntimeError: no copies",
        "device": "cpu",
        "are the same": [True, True, True],
        "allocated": 0,
    }


# What is not moved


def test_what_is_beside_a_model_stays_as_it_is(run: Runner) -> None:
    assert run("moving_torch.what_is_beside_a_model") == {
        "model": "pretend:0",
        "data": "cpu",
        "scheduler has its optimizer": True,
        "scale": "cpu",
        "n": 3,
    }


def test_a_scheduler_has_nothing_to_move(run: Runner) -> None:
    assert run("moving_torch.scheduler_alone") == (
        "There is nothing to move in it (OneCycleLR): no framework's arrays."
    )


def test_a_number_has_nothing_to_move(run: Runner) -> None:
    assert run("moving_torch.number") == "There is nothing to move in it (int): no framework's arrays."


def test_a_tensor_on_the_meta_device_has_no_data(run: Runner) -> None:
    assert run("moving_torch.meta_tensor") == (
        "A Tensor of shape (2,) is on the meta device and has no data to move."
    )


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ("0,1", "Variables go to one device, and 0,1 names 2."),
        (9, "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."),
    ],
)
def test_the_destination_is_one_device_that_is_there(run: Runner, wanted: object, error: str) -> None:
    assert run("moving_torch.destination", wanted) == error


def test_what_is_there_already_stays_the_same_tensor(run: Runner) -> None:
    assert run("moving_torch.already_there") is True


def test_what_does_not_fit_is_not_begun(run: Runner) -> None:
    assert run("moving_torch.too_big") == {
        "error": "4.0 MiB do not fit on pretend:1, where 3.0 MiB are free. Move fewer, or see what %gpu_free gives "
        "back. Nothing was changed.",
        "was allocated": 0,
        "device": "cpu",
    }


def test_memory_that_the_allocator_keeps_is_room(run: Runner) -> None:
    assert run("moving_torch.room_in_the_allocator_s_cache") == "pretend:1"
