"""A few tasks in the form of KernelBench-X, and functions to stage their problems."""

import json
import textwrap

SEPARATOR = "#" * 146


def task(function, test):
    """Return the text of a task's file."""
    return textwrap.dedent(function).strip() + f"\n\n{SEPARATOR}\n\n" + textwrap.dedent(test).strip() + "\n"


SCALED_SUM = task(
    '''
    import torch


    def scaled_sum(x, others, scale=1.0, *, kind=None, dtype=None):
        """Adds tensors up,
        then scales them."""
        total = x
        for other in others:
            total = total + other
        total = total * scale
        return {"sum": total, "count": len(others) + 1} if kind == "both" else total
    ''',
    """
    import os
    import sys
    sys.path.append(os.path.join(os.path.dirname(__file__), "../utils"))
    import torch
    from data_utils import rand_int, rand_tensor


    def test_scaled_sum():
        torch.manual_seed(0)
        results = {}
        fixed = torch.tensor([1.0, 2.0], device="cuda")
        results["fixed"] = scaled_sum(fixed, [fixed, fixed])
        results["empty"] = scaled_sum(torch.tensor([]).cuda(), [])
        print("a test may talk")
        for mode in ("standard", "outlier"):
            for shape, scale in (((4, 8), 0.5), ((16, 32), 2.0)):
                for _ in range(2):
                    x = rand_tensor(shape, dtype=torch.float32, mode=mode, outlier_prob=0.1, outlier_scale=10.0)
                    y = rand_tensor(shape, dtype=torch.float32, mode=mode)
                    out = scaled_sum(x, [y, x], scale, kind="both", dtype=torch.float32)
                    results[str(len(results))] = out["sum"]
        return results

    test_results = test_scaled_sum()
    """,
)
"""Calls 0 and 1 have fixed inputs; 2 to 9 draw them, twice for each of four kinds, the largest from 4 on."""

METADATA = [
    {
        "name": "scaled_sum",
        "file": "Fusion/scaled_sum.py",
        "difficulty": 3,
        "description": "Sums several\n tensors and scales.",
    },
    {
        "name": "product_w8a8",
        "file": "Quantization/product_w8a8.py",
        "difficulty": "4",
        "description": "A quantised product of two matrices.",
        "precision_thresholds": {"cosine_sim": 0.95, "l1_relative": 0.05, "rmse": 0.1},
    },
]

PRODUCT = task(
    """
    import torch


    def product_w8a8(a, b):
        return a @ b
    """,
    """
    import torch

    def test_product_w8a8():
        return {"one": product_w8a8(torch.randn(8, 16, device='cuda'), torch.randn(16, 4, device='cuda'))}

    test_results = test_product_w8a8()
    """,
)


def checkout(root):
    """Write a checkout with two tasks and their metadata at ``root``."""
    for name, text in {"Fusion/scaled_sum": SCALED_SUM, "Quantization/product_w8a8": PRODUCT}.items():
        path = root / f"data/kernelbenchx/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "data/kernelbenchx_v1.json").write_text(json.dumps(METADATA))
    return root


def stage(code, folder):
    """Stage a module and its further files like in the folder of a process."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**code.contents(), "module.py": code.module()}.items():
        (folder / name).write_bytes(content)
    return folder / "module.py"
