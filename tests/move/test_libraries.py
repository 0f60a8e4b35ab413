"""Objects of packages that gpu_magic does not know: data is moved whole, and what can't be moved is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def test_a_cache_of_keys_and_values_is_moved_and_goes_on_there(run: Runner) -> None:
    assert run("moving_libraries.moved_cache") == [True, "pretend:1", "pretend:1", [1, 3, 3], "cpu"]


def test_a_model_s_output_is_moved_whole(run: Runner) -> None:
    assert run("moving_libraries.model_output") == {
        "is the same": True,
        "logits": ["pretend:1", "pretend:1", True],
        "cache": "pretend:1",
        "hidden states": ["pretend:1", True],
        "keys": ["logits", "past_key_values", "hidden_states"],
        "devices": {"pretend:1": 8 + 24 + 24 + 12},
    }


def test_what_a_cache_says_of_its_device_is_undone(run: Runner) -> None:
    assert run("moving_libraries.undone") == [True, "cpu", "cpu"]


def test_distributions_are_moved(run: Runner) -> None:
    names = ["normal", "categorical", "multivariate", "independent", "transformed"]
    assert run("moving_libraries.distributions") == dict.fromkeys(names, "pretend:1")


def test_a_pipeline_is_not_moved_and_it_is_said_what_can_be(run: Runner) -> None:
    assert run("moving_libraries.pipeline") == {
        "error": "pipe is a Pipeline of transformers, which can't be moved as a whole (24 bytes on cpu): "
        "%to_gpu pipe.model moves its parts; then set pipe.device.",
        "then": "pretend:1",
        "from Python": "it is a Pipeline of transformers, which can't be moved as a whole (24 bytes on cpu): move its "
        ".model; then set its .device.",
    }


def test_a_trainer_is_not_moved_and_it_is_said_what_can_be(run: Runner) -> None:
    assert run("moving_libraries.trainer") == {
        "error": "trainer is a Trainer of transformers, which can't be moved as a whole (24 bytes on cpu): "
        "%to_gpu trainer.model trainer.optimizer moves its parts.",
        "then": "pretend:1",
    }


def test_an_object_without_movable_parts_is_to_be_created_again(run: Runner) -> None:
    assert run("moving_libraries.without_parts") == (
        "learner is a Learner of fastai, which can't be moved as a whole (8 bytes on cpu): create it again in a cell "
        "with %%on_gpu."
    )


def test_what_is_left_within_others_is_said_if_it_is_not_moved_with_them(run: Runner) -> None:
    assert run("moving_libraries.within_others") == [
        [
            "8 bytes moved to pretend:1.",
            "state holds a Pipeline of transformers, which can't be moved as a whole (24 bytes on cpu): move its "
            ".model; then set its .device.",
        ],
        ["24 bytes moved to pretend:1."],
    ]


def test_what_is_left_is_said_with_all(run: Runner) -> None:
    assert run("moving_libraries.among_all") == [
        "8 bytes moved to pretend:1.",
        "pipe is a Pipeline of transformers, which can't be moved as a whole (24 bytes on cpu): %to_gpu pipe.model moves "
        "its parts; then set pipe.device.",
    ]


def test_a_data_set_stays_and_its_tensors_can_be_moved(run: Runner) -> None:
    stays = "stays on the CPU, where a DataLoader's workers read it: move each batch (32 bytes on cpu)"
    assert run("moving_libraries.dataset") == {
        "data": f"A TensorDataset {stays}: %to_gpu data.tensors moves its parts.",
        "loader": f"A DataLoader {stays}.",
        "then": "pretend:1",
    }


def test_an_exported_program_has_a_way_of_its_own(run: Runner) -> None:
    assert run("moving_libraries.exported") == (
        "An exported program has its device in its graph: torch.export.passes.move_to_device_pass(program, "
        '"cuda:0") returns one for another.'
    )


def test_it_is_seen_where_they_are(run: Runner) -> None:
    assert run("moving_libraries.seen") == {
        "pipe": {"cpu": 24},
        "cache": {"cpu": 48},
        "learner": {"cpu": 8},
        "shell": {},
    }
