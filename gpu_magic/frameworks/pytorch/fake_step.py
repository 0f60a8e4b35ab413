"""Predicts the memory of a step: runs it on fake copies, which have no data. It imports PyTorch."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from gpu_magic.errors import FitError
from gpu_magic.frameworks.prediction import (
    FunctionCall,
    NotFollowed,
    Predictor,
    StepMemory,
    TrainingStep,
    name_of,
)
from gpu_magic.frameworks.pytorch.as_on_gpu import AsOnGpu
from gpu_magic.frameworks.pytorch.batch import first_batch, resized, size_of, tensors_in
from gpu_magic.frameworks.pytorch.fake_copy import FakeCopy
from gpu_magic.frameworks.pytorch.kept_state import kept_state
from gpu_magic.frameworks.pytorch.stand_ins import Autocast
from gpu_magic.frameworks.pytorch.step_interrupts import can_raise, is_in_backward
from gpu_magic.frameworks.pytorch.step_memory import StepCounter
from gpu_magic.frameworks.pytorch.training import check, dtype_of, forward, loss_of, naming_arrays
from gpu_magic.frameworks.pytorch.why_not import why_not_followed
from gpu_magic.frameworks.shadow.refusals import refusing
from gpu_magic.interrupts import held_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.frameworks.prediction import Step

__all__ = ["FakeStep"]


class FakeStep(Predictor):
    """A step that runs on fake copies of all that it uses; nothing of the user's is changed.

    Parameters
    ----------
    step
        The step.

    Raises
    ------
    FitError
        What it is about is not what it should be.

    """

    def __init__(self, step: Step) -> None:
        self._step, self._batch = step, None
        self._state = self._more = 0
        if isinstance(step, TrainingStep):
            check(step)
            self._batch = step.batch
            if isinstance(step.batch, torch.utils.data.DataLoader):
                with held_interrupts(can_raise) as interrupts, kept_state(), interrupts.open():
                    self._batch = first_batch(step.batch)

    @property
    def batch_size(self) -> int | None:
        step = self._step
        return size_of([step.args, step.kwargs] if isinstance(step, FunctionCall) else self._batch)

    def predict(self, batch_size: int | None = None) -> StepMemory:
        step = self._step
        with _running() as (copy, counter):
            if isinstance(step, FunctionCall):
                _call(step, copy, counter, batch_size)
                return StepMemory(counter.at_peak(), copy.fakes.present())
            training = _Training(step, self._batch, copy, counter, batch_size)
            training.forward_and_backward()
            before = counter.now
            training.optimizer_step()
            self._state, self._more = counter.state, counter.most(before) - counter.in_use(before)
            return StepMemory(counter.at_peak(), copy.fakes.present(), training.notes)

    def peak(self, batch_size: int) -> int:
        """Return the most bytes in use for another batch: what the optimizer does does not depend on it."""
        step = self._step
        if isinstance(step, FunctionCall):
            return self.predict(batch_size).peak
        with _running() as (copy, counter):
            training = _Training(step, self._batch, copy, counter, batch_size)  # it has the batch
            training.forward_and_backward()
            missing = self._state - counter.state
            return missing + max(counter.most(), counter.in_use(counter.now) + self._more)


@contextlib.contextmanager
def _running() -> Iterator[tuple[FakeCopy, StepCounter]]:
    """Run on fake copies, and say in one line what goes wrong."""
    with (
        held_interrupts(can_raise) as interrupts,
        refusing() as refusals,
        kept_state(),
        _without_collection(),
    ):

        def between() -> None:
            if interrupts.is_waiting and not is_in_backward():
                interrupts.check()

        counter = StepCounter(between)
        copy = FakeCopy(counter, between)
        try:
            # Anomaly detection reads each gradient, in C++.
            anomaly = torch.autograd.set_detect_anomaly(False)
            with anomaly, copy.fakes.mode, counter, AsOnGpu(counter), interrupts.open():
                yield copy, counter
            refusals.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever the user's step raises: SystemExit, too
            refused = refusals.take()
            if refused is None and isinstance(error, FitError):
                _let_go_of_frames(error.__context__)
                raise
            why = why_not_followed(refused or error)
            _let_go_of_frames(refused)
            _let_go_of_frames(error)
            raise FitError(why) from None
        finally:
            counter.close()
            copy.close()


def _call(step: FunctionCall, copy: FakeCopy, counter: StepCounter, batch_size: int | None) -> None:
    """Call a function of the user's; twice, where the second call begins with more than the first."""
    function = copy(step.function)
    args = [_resized(copy, counter, value, batch_size) for value in step.args]
    kwargs = {name: _resized(copy, counter, value, batch_size) for name, value in step.kwargs.items()}
    counter.label(tensors_in([args, kwargs]), "activations", is_present=True)
    counter.begin()
    function(*args, **kwargs)
    if not counter.has_computed:
        raise FitError(
            f"{name_of(step)} computes nothing with tensors: give the call of a function that does, "
            "train_step(batch)."
        )
    copy.label_state()
    if counter.has_new_state or copy.has_gradients:
        counter.begin()
        function(*args, **kwargs)
        copy.label_state()


class _Training:
    """One step of training as most programs make it: gradients are freed, forward, loss, backward, step."""

    def __init__(
        self, step: TrainingStep, batch: Any, copy: FakeCopy, counter: StepCounter, batch_size: int | None
    ) -> None:
        self._step, self._copy, self._counter = step, copy, counter
        self._dtype = dtype_of(step)
        if self._dtype is not None and not step.amp:
            copy.cast([*_tensors_of(step), *tensors_in(batch)], self._dtype)
        self._model, self._optimizer, self._loss = copy(step.model), copy(step.optimizer), copy(step.loss)
        self._batch = _resized(copy, counter, batch, batch_size)
        self.notes: tuple[str, ...] = ()
        for parameter in self._model.parameters():
            parameter.grad = None
        if step.is_eval:
            self._model.eval()
        elif not self._model.training:
            self._model.train()
        counter.label(tensors_in(self._batch), "activations", is_present=True)
        counter.label([*self._model.parameters(), *self._model.buffers()], "parameters", is_present=True)
        counter.begin()

    def forward_and_backward(self) -> None:
        """Make the forward, and where that is asked for the backward."""
        step = self._step
        precision: Any = contextlib.nullcontext()
        if step.amp:
            precision = Autocast("cuda", self._dtype)
        with naming_arrays(self._batch), torch.set_grad_enabled(not step.is_eval), precision:
            output, targets = forward(self._model, self._batch, has_loss=self._loss is not None)
            if step.is_eval:
                self._counter.forward_ends()
                return
            value, self.notes = loss_of(output, targets, self._loss)
        del output, targets
        value.backward()

    def optimizer_step(self) -> None:
        """Make the optimizer's step, if there is an optimizer."""
        if self._optimizer is not None:
            try:
                self._optimizer.step()
            except (DataDependentOutputException, NotFollowed) as error:
                name = type(self._step.optimizer).__name__
                why = (
                    f"{name} decides by what tensors hold; leave it out, and it is forward and backward alone"
                )
                raise NotFollowed(why).with_traceback(error.__traceback__) from None
            self._copy.label_state()


def _tensors_of(step: TrainingStep) -> Iterator[Any]:
    """Return the tensors of a step's model, and those of its optimizer that are as large as parameters."""
    yield from step.model.parameters()
    yield from step.model.buffers()
    if step.optimizer is not None:
        yield from (one for one in tensors_in(list(step.optimizer.state.values())) if one.dim())


def _resized(copy: FakeCopy, counter: StepCounter, batch: Any, size: int | None) -> Any:
    """Return the copy of a batch, with another size where one is given: what it was then does not count."""
    copied = copy(batch)
    if size is not None:
        for tensor in tensors_in(copied):
            counter.leave_out(tensor)
    return resized(copied, size)


def _let_go_of_frames(error: BaseException | None) -> None:
    """Have an error, and those that led to it, hold no frames: the FitError that follows holds the error."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        _let_go_of_frames(error.__cause__)
        error = error.__context__


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector: a step makes many objects, and hardly any garbage that it would find."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
