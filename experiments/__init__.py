"""The paper's tables and figures, on the public API only: `python -m experiments`.

The paper is Haliassos, Konstantinidis and Mandic, *Supervised Learning for Non-Sequential Data: A
Canonical Polyadic Decomposition Approach*. One file per experiment; each has

    cells(scale)          the fits it consists of
    section(found, to)    its part of the report: tables, pictures, claims and their verdicts
"""
