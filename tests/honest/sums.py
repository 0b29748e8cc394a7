"""Honest ways to add numbers; this text stands before each candidate of :mod:`tests.honest.variants`.

Each takes terms and a dimension and returns their sum along it, kept in the precision of the terms.
"""

import torch


def in_turn(terms, dim):
    """Add one after another."""
    total = torch.zeros_like(terms.select(dim, 0))
    for term in terms.unbind(dim):
        total = total + term
    return total


def from_the_end(terms, dim):
    """Add the last first."""
    return in_turn(terms.flip(dim), dim)


def in_blocks(terms, dim):
    """Add blocks of 16, then the blocks."""
    return in_turn(torch.stack([in_turn(block, dim) for block in terms.split(16, dim)]), 0)


def in_pairs(terms, dim):
    """Add neighbours, then neighbouring sums, as a tree of threads does."""
    while terms.shape[dim] > 1:
        if terms.shape[dim] % 2:
            terms = torch.cat([terms, torch.zeros_like(terms.narrow(dim, 0, 1))], dim)
        places = torch.arange(0, terms.shape[dim], 2)
        terms = terms.index_select(dim, places) + terms.index_select(dim, places + 1)
    return terms.squeeze(dim)


def compensated(terms, dim):
    """Add with Kahan's correction."""
    total = lost = torch.zeros_like(terms.select(dim, 0))
    for term in terms.unbind(dim):
        exact = term - lost
        after = total + exact
        lost = (after - total) - exact
        total = after
    return total


def fused(a, b, total):
    """Return ``a * b + total``, rounded once."""
    return (a.double() * b.double() + total.double()).to(total.dtype)


def running_moments(x, dim):
    """Return mean and variance in one pass, as Welford does."""
    mean = squares = torch.zeros_like(x.select(dim, 0))
    for count, number in enumerate(x.unbind(dim), 1):
        before = number - mean
        mean = mean + before / count
        squares = squares + before * (number - mean)
    return mean, squares / x.shape[dim]


def running_softmax_sum(x, dim, size=32):
    """Return the maximum and the sum of exponentials in one pass over blocks."""
    top = torch.full_like(x.select(dim, 0), -torch.inf)
    total = torch.zeros_like(top)
    for block in x.split(size, dim):
        higher = torch.maximum(top, block.amax(dim))
        total = total * (top - higher).exp() + (block - higher.unsqueeze(dim)).exp().sum(dim)
        top = higher
    return top, total
