"""Compiled code: what runs per row. No classes, no options; arrays in and out.

The arithmetic is float32 throughout and follows the type of the arrays, so that tests can run the
very same code in float64. Every kernel releases the GIL: threads, not processes, fill the cores.
"""
