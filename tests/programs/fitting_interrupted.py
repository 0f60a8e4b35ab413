"""Predictions that are interrupted at any moment: the process lives, and all is as it was."""

import contextlib
import os
import random
import signal
import threading
import time
from types import FunctionType

import torch
import torch._dynamo

import gpu_magic
from tests.programs.fitting_untouched import batch, history, look, model, nn, optimizer, same, train


def fit_model():
    return gpu_magic.fit(model, optimizer, batch, nn.CrossEntropyLoss())


def fit_function():
    return gpu_magic.fit(step, batch)


def step(batch):
    history.append(nn.functional.dropout(batch[0]).sum().item())
    random.random()
    train(batch).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def swallow(batch):
    """Take all errors, as code that goes on with the next item does."""
    for _ in range(100):
        with contextlib.suppress(BaseException):
            train(batch).backward()


def fit_swallowing():
    return gpu_magic.fit(swallow, batch)


def anywhere(what, times, interrupts):
    """Interrupt predictions at random moments; return how they ended, and what has changed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    predict = globals()[what]
    train(batch).backward()
    optimizer.step()
    predict()
    began = time.monotonic()
    with contextlib.suppress(gpu_magic.FitError):
        predict()
    took = time.monotonic() - began
    chance, ended = random.Random(0), {}
    moments = [[chance.uniform(0, 1.1 * took) for _ in range(interrupts)] for _ in range(times)]
    handlers, before = set(), look()
    for waits in moments:
        sender = threading.Thread(target=_send, args=(waits,))
        how = "finished"
        try:
            sender.start()
            predict()
        except KeyboardInterrupt:
            how = "interrupted"
        except gpu_magic.FitError as error:
            how = str(error)
        handlers.add(signal.signal(signal.SIGINT, signal.SIG_IGN))
        sender.join()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ended[how] = ended.get(how, 0) + 1
    after = look()
    return {
        "ended": ended,
        "changed": [name for name in before if not same(before[name], after[name])],
        "handlers": handlers == {signal.default_int_handler},
    }


def _send(waits):
    for wait in waits:
        time.sleep(wait)
        os.kill(os.getpid(), signal.SIGINT)


def in_user_code():
    """Interrupt a function that makes no more operations, where it is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def hangs(x):
        model(x).sum().backward()
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            time.sleep(0.01)

    try:
        gpu_magic.fit(hangs, batch[0])
    except KeyboardInterrupt:
        return "interrupted"


def in_library(times):
    """Interrupt a function while it waits in PyTorch's code, once or more; return whether it went on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reading, writing = os.pipe()

    def interrupt():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    waits = FunctionType(compile("__import__('time').sleep(1)", torch.__file__, "eval"), {})

    def hangs(x):
        threading.Timer(0.1, interrupt).start()
        waits()
        os.write(writing, b"on")
        return model(x)

    try:
        gpu_magic.fit(hangs, batch[0])
    except KeyboardInterrupt:
        os.close(writing)
        return os.read(reading, 2).decode()


def with_own_handler():
    """Interrupt where the user has a handler that does not raise."""
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))

    def interrupts(x):
        signal.raise_signal(signal.SIGINT)
        return model(x).sum().backward()

    found = gpu_magic.fit(interrupts, batch[0])
    return {"peak": found.peak > 0, "seen": bool(seen)}
