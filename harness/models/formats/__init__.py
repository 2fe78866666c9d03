"""Checkpoints in the names other projects give to the same tensors.

`rules` is the table of formats, as data; `files` reads and writes safetensors; `transfer` moves weights and accounts
for every tensor.
"""
