"""Find the API server, and how to be let in: kubeconfig files, service accounts, certificates, proxies."""
