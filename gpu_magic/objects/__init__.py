"""The memory of objects on each device: `%where`, `%gpu_free`, and the lines below out-of-memory errors."""
