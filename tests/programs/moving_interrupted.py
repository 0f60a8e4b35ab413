"""`to_gpu` interrupted at every point: the interrupt is raised, and what moves is whole, here or there."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn

import gpu_magic
from gpu_magic import to_gpu

FOLDER = str(Path(gpu_magic.__file__).parent / "move")


class Finishing(nn.LSTM):
    """An RNN whose last step, once its weights have been moved, is interrupted."""

    def flatten_parameters(self):
        if getattr(self, "interrupts", False):
            os.kill(os.getpid(), signal.SIGINT)


class Refusing:
    __module__ = "torch"  # another package's

    def __init__(self):
        self.x = torch.ones(2)
        self.inner = nn.Linear(2, 2)

    def to(self, device):
        self.inner.to(device)
        raise ValueError("no way")


def interrupt_at_the_end():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    model, box = Finishing(2, 2), [torch.ones(2)]
    model.interrupts = True
    try:
        to_gpu((model, box), 0)
        raised = ""
    except BaseException as error:  # noqa: BLE001 - whichever it is
        raised = type(error).__name__
    return {"raised": raised, "devices": [str(model.weight_hh_l0.device), str(box[0].device)]}


def ignored_interrupt():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model = Finishing(2, 2)
    model.interrupts = True
    to_gpu(model, 0)
    return [str(model.weight_hh_l0.device), signal.getsignal(signal.SIGINT) == signal.SIG_IGN]


class Interrupt:
    """Interrupts this process before the line of that number of gpu_magic's that is run next."""

    def __init__(self, number):
        self.left, self.was_sent = number, False

    def trace(self, frame, event, _):
        if event == "call" and not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                self.was_sent = True
                os.kill(os.getpid(), signal.SIGINT)
        return self.trace


def interrupt_everywhere():
    """Interrupt one move before each line in turn, until there is none of that number."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    swallowed, torn, count = [], [], 0
    while True:
        count += 1
        model, box = nn.Linear(2, 2), {"x": torch.ones(2)}
        state, interrupt, was_raised = [model, box], Interrupt(count), False
        sys.settrace(interrupt.trace)
        try:
            to_gpu(state, 0)
        except KeyboardInterrupt:
            was_raised = True
        finally:
            sys.settrace(None)
        if not interrupt.was_sent:
            break
        if not was_raised:
            swallowed.append(count)
        if len({model.weight.device, model.bias.device, box["x"].device}) > 1:
            torn.append(count)
    return {"swallowed": swallowed, "torn": torn, "interrupts": count}


def interrupt_while_it_is_undone():
    """The second interrupt, or one that comes while an error is undone, is raised after that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    swallowed, torn, count = [], [], 0
    while True:
        count += 1
        model, refusing = nn.Linear(2, 2), Refusing()
        interrupt, raised = Interrupt(count), ""
        sys.settrace(interrupt.trace)
        try:
            to_gpu([model, refusing], 0)
        except BaseException as error:  # noqa: BLE001 - whichever it is
            raised = type(error).__name__
        finally:
            sys.settrace(None)
        if not interrupt.was_sent:
            break
        if raised != "KeyboardInterrupt":
            swallowed.append(count)
        if {model.weight.device.type, refusing.inner.weight.device.type} != {"cpu"}:
            torn.append(count)
    return {"swallowed": swallowed, "torn": torn, "interrupts": count}
