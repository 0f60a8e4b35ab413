"""See the machine's GPUs and choose those that this process uses: `%gpus`."""
