"""The backend ``cpu``: fused kernels for a CPU."""
