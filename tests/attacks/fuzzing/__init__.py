"""Inputs that nobody meant: good ones, mutated by the hundred thousand, read by the functions that a replica calls.

An input is bytes, so that one that fails can be kept: `tests/attacks/corpus/TARGET/` has all that ever did, and they
are tried first. What holds for every input: nothing is raised but what the reader promises, it takes less than a
second of CPU, and the answer is what an oracle says that was written apart from `webhook/core`.

    mutation   good inputs made bad: values, keys, texts, bytes, lines
    seeds      the good inputs: golden cases, generated askings, huge pods, rule files
    api_server what an API server does with a patch, and whether it takes the pod
    kubelet    the oracle: which devices a stored pod reaches, by its spec alone
    reviews    the life of a pod at one replica, from the review to the ledger
    targets    everything that is fuzzed
    campaign   so many inputs for one target, and the corpus
    guided     the same guided by coverage, with atheris, in a soak

`python -m tests.attacks.fuzzing TARGET COUNT [SEED]` runs one by itself.
"""
