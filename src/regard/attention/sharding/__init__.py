"""Attention over sequences that lie in pieces on the processes of a mesh (`regard.distributed`).

Queries travel, keys stay: in one step each process sends a block of its query rows to the processes whose keys these
rows see. Every process scores the rows that it received against its own keys. What the normalizer needs of a whole row
is summed over the processes (a few numbers a row), the weights mix the values, and the partial outputs travel back,
where they are added up. No process holds keys of another, or a matrix of weights.

=================  ===================================================================================================
placement.py       what a call's tensors stand for: the parts of this process, and the whole that is checked
checked.py         the check of a call, of whose failure the other processes learn
agreement.py       what the processes compare of a call before anything is exchanged
steps.py           which rows travel together, and which keys they see
rows.py            the normalizers on rows whose keys lie on several processes
calculation.py     one step: scores, weights, output, and its readings
execution.py       all steps, forward and backward
whole.py           calls whose weights depend on all queries: every process gets the whole sequence
plan.py            what `regard.plan` says
=================  ===================================================================================================
"""
