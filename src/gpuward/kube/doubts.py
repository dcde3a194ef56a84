"""Learn what an object is whose last write has an outcome that is not known."""

from __future__ import annotations

from typing import Any

from gpuward import errors
from gpuward.kube.cache.cache import Cache
from gpuward.kube.http.client import Client
from gpuward.kube.resources import GVR


async def settle(client: Client, gvr: GVR, cache: Cache[Any, Any], key: Any) -> None:
    """Read one object and let the cache know. Raises what the read raises, but for NotFound."""
    namespace, name = cache.projection.keys.locate(key)
    mark = cache.uncertain_since(key)
    try:
        answer = await client.get(gvr, name, namespace if gvr.namespaced else "")
    except errors.NotFound:
        cache.settle(key, None, mark)
    else:
        cache.settle(key, answer.body, mark)
