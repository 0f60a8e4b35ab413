"""What was found to be lost, or left behind without a word, when things are moved; each failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_an_ordered_dict_stays_whole_also_beside_jax(run: Runner) -> None:
    assert run("moving_torch_and_jax.ordered_dict") == {
        "is the same": True,
        "types of keys": ["Tensor", "str", "str"],
        "values": [1, 2],
        "device": "pretend:0",
    }


def test_a_defaultdict_keeps_its_default_also_beside_jax(run: Runner) -> None:
    assert run("moving_torch_and_jax.defaultdict") == {"is the same": True, "new": [], "device": "pretend:0"}


def test_a_state_dict_keeps_its_metadata_also_beside_jax(run: Runner) -> None:
    assert run("moving_torch_and_jax.state_dict") == {"is the same": True, "has its version": True}


def test_an_ordered_dict_that_holds_itself_still_does_also_beside_jax(run: Runner) -> None:
    assert run("moving_torch_and_jax.loop") == {"is the same": True, "is tied": True, "device": "pretend:0"}


def test_each_step_is_undone_whatever_another_one_raises(run: Runner) -> None:
    assert run("moving_nothing_lost.property_without_a_setter") == {
        "error": "Moving to pretend:0 failed, and all is as it was: AttributeError: property 't' of 'Odd' object "
        "has no setter",
        "devices": ["cpu", "cpu"],
        "are the same": [True, True],
    }


def test_an_interrupt_while_things_are_put_in_place_is_undone(run: Runner) -> None:
    assert run("moving_nothing_lost.interrupt") == {
        "was interrupted": True,
        "devices": ["cpu", "cpu", "cpu"],
        "allocated": 0,
        "handler is as before": True,
    }


def test_objects_that_move_themselves_are_told_to_go_back(run: Runner) -> None:
    assert run("moving_nothing_lost.objects_that_move_themselves") == {
        "error": "Moving to pretend:0 failed, and all is as it was: ValueError: no way",
        "after the error": ["cpu", "cpu", 0],
        "is the same": True,
        "devices": ["pretend:0", "pretend:0"],
    }


def test_the_user_s_own_object_that_moves_itself_stays_tied_to_what_it_holds(run: Runner) -> None:
    assert run("moving_nothing_lost.own_object_that_moves_itself") == {"is tied": True, "device": "pretend:1"}


def test_a_view_of_another_dtype_keeps_its_numbers(run: Runner) -> None:
    found = run("moving_nothing_lost.view_of_another_dtype")
    assert found["dtype"] == "torch.complex64"
    assert found["view"] == found["parameter"]


def test_the_optimizer_of_a_plain_tensor_keeps_its_state_and_gradient(run: Runner) -> None:
    assert run("moving_nothing_lost.optimizer_of_a_plain_tensor") == {
        "is its parameter": True,
        "has a state": True,
        "devices": ["pretend:0", "pretend:0"],
        "bytes": 24,
    }


def test_a_scripted_module_is_not_moved(run: Runner) -> None:
    assert run("moving_nothing_lost.scripted_module") == (
        "A scripted module keeps its tensors outside Python: use its own .to(device)."
    )


def test_a_tensor_whose_storage_was_resized_is_not_moved(run: Runner) -> None:
    assert run("moving_nothing_lost.resized_storage") == {
        "error": "A Tensor of shape (100,) has no memory at present (its storage was resized).",
        "bytes": 0,
    }


def test_numpy_arrays_of_any_layout(run: Runner) -> None:
    assert run("moving_nothing_lost.numpy_layouts") == {
        "reversed": [2, 1, 0],
        "big-endian": "torch.float32",
        "read-only": "pretend:0",
    }


def test_a_masked_array_keeps_its_mask(run: Runner) -> None:
    assert run("moving_nothing_lost.masked_array") == "MaskedArray"


def test_numpy_arrays_of_types_that_no_tensor_has(run: Runner) -> None:
    assert run("moving_nothing_lost.numpy_types") == {
        "longdouble": "PyTorch has no tensors of NumPy's float128.",
        "text": "it is NumPy's, and no framework has arrays of <U1.",
    }


def test_a_plan_does_not_start_jax(run: Runner) -> None:
    assert run("moving_jax.planned") == {"bytes": 8, "is started": False}


def test_jax_says_what_it_would_lose(run: Runner) -> None:
    assert run("moving_jax.from_numpy_of_more_bits") == (
        'JAX would make float32 of float64, as jax_enable_x64 is not set: convert it yourself, with .astype("float32").'
    )


def test_the_user_s_own_pytree_keeps_what_jax_would_forget(run: Runner) -> None:
    assert run("moving_jax.own_pytree") == {"is the same": True, "count": 7, "device": "{CpuDevice(id=2)}"}


def test_what_another_thread_writes_meanwhile_is_kept(run: Runner) -> None:
    assert run("moving_nothing_lost.written_meanwhile") == {
        "attribute": 5,
        "list": ["new"],
        "dict": 2,
        "devices": ["pretend:0", "pretend:0"],
    }


def test_no_class_is_kept_alive(run: Runner) -> None:
    assert run("moving_nothing_lost.class_that_is_gone") is True


def test_no_memory_is_kept_that_is_not_wanted_any_more(run: Runner) -> None:
    found = run("moving_nothing_lost.memory_that_is_not_wanted_any_more")
    assert found == {"allocated": 0, "device": "cpu"}


def test_what_a_setter_has_changed_before_it_raised_is_put_back(run: Runner) -> None:
    assert run("moving_nothing_lost.setter_that_raises") == {
        "error": "Moving to pretend:0 failed, and all is as it was: ValueError: not there",
        "are the same": [True, True],
        "allocated": 0,
    }


def test_two_things_are_to_be_given_as_one(run: Runner) -> None:
    assert run("moving_nothing_lost.model_and_optimizer") == (
        "to_gpu moves one thing, followed by the device, not an SGD: to_gpu((model, optimizer), 1) moves "
        "several."
    )


def test_none_is_not_something_to_move(run: Runner) -> None:
    assert run("moving_nothing_lost.nothing_given") == "to_gpu moves a variable, and this one is None."


def test_a_name_is_to_be_given_without_quotes(run: Runner) -> None:
    assert run("moving_nothing_lost.name_in_quotes") == (
        "to_gpu moves a variable, and 'model' is a string: remove the quotes."
    )


def test_the_destination_is_a_device_a_number_or_that_of_the_block(run: Runner) -> None:
    found = run("moving_nothing_lost.destinations")
    assert found.pop("kept on the last") > 0
    assert found == {
        "torch.device": "pretend:1",
        "NumPy's number": "pretend:3",
        "that of the block": "pretend:2",
        "the first": "pretend:0",
    }
