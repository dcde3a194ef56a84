"""NVIDIA's custom resources, ClusterPolicy and NVIDIADriver: typed, with defaults, validation and their CRDs.

Types       `clusterpolicy` and `nvidiadriver`, with their parts in `driver`, `driver_upgrade`, `components`,
            `sandboxes` and `shapes`; what a schema says beyond a type is in `facts` and `kubernetes`.
Reading     `decode` turns JSON values into types and names every field that does not fit (`check`).
Judging     `validate` finds what the schema lets through although it cannot be followed (`rules`, `selectors`).
Following   `conversion` makes the policy of the upgrade decision from the upgrade settings.
Publishing  `generate` makes the CRDs from the types (`schema`, `descriptions`).
"""
