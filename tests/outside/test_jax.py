"""Flax and Optax on JAX's four logical CPUs, as notebooks use them: their state is found and moved."""

from __future__ import annotations

from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax import nnx
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from gpu_magic import devices_of, on_gpu, to_gpu

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layer, self.drop = nnx.Linear(2, 3, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x):
            return self.drop(self.layer(x))


@gives([[["cpu:2"]] * 4, True, ["cpu:2"], ["cpu:2"], [["cpu:3"], ["cpu:3"]]])
def test_a_model_with_its_optimizer_a_key_and_a_sharded_array():
    """They are moved, and train on; then a model is made in a block."""
    mesh = Mesh(np.array(jax.devices()), ("d",))
    sharded = jax.device_put(np.arange(16.0).reshape(8, 2), NamedSharding(mesh, PartitionSpec("d")))
    net, batch = Net(nnx.Rngs(0)), np.ones((4, 2), np.float32)

    @nnx.jit
    def step(net, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda model: jnp.square(model(x)).mean())(net)
        optimizer.update(net, grads)
        return loss

    things = [net, nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param), jax.random.key(0), sharded]
    moved = to_gpu(things, "cpu:2")
    loss = step(moved[0], moved[1], batch)
    found = [[[*devices_of(one)] for one in moved], bool(moved[3].sum() == 120.0)]
    found += [[*devices_of(loss)], [*devices_of(jax.random.normal(moved[2]))]]
    with on_gpu("cpu:3"):
        other = Net(nnx.Rngs(1))
        return [*found, [[*devices_of(other)], [*devices_of(other(batch))]]]
