from __future__ import annotations

from sandbox_helpers.cluster import Cluster, play


def test_each_namespace_gets_its_account_and_certificate_and_gets_them_back() -> None:
    async def story() -> None:
        cluster = Cluster()
        store = cluster.store

        def complete() -> bool:
            return bool(store.find("serviceaccounts", "ml", "default") and store.find("configmaps", "ml", "kube-root-ca.crt"))

        await cluster.until(complete)
        store.delete("serviceaccounts", "ml", "default")
        assert not complete()
        await cluster.until(complete)
        store.delete("namespaces", None, "ml")
        store.delete("serviceaccounts", "ml", "default")
        await cluster.rest(1.0)
        assert not complete()

    play(story)
