"""Deterministic simulation: a whole operator on a sandbox, in virtual time, under faults and meddling drawn from one seed."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("kubesandbox") is None:
    raise SystemExit("the simulated runs need the sandbox: ./dev setup, or pip install 'gpuward[sandbox]'")
