"""Lead: the election, and the ledger of admissions that is kept on its Lease."""
