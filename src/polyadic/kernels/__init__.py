"""Compiled code: what runs per row. No classes, no options; arrays in and out.

The kernels of Adam and of predictions compute in the type of the arrays they are given: float32, or
float64 in tests. The others compute in float64. Every kernel releases the GIL, so that threads, not
processes, use several CPU cores.
"""
