"""The custom resources, NVIDIA's ClusterPolicy and NVIDIADriver and our RolloutPolicy: typed, with defaults, validation and CRDs.

Types       `clusterpolicy`, `nvidiadriver` and `rolloutpolicy`, with their parts in `driver`, `driver_upgrade`,
            `components`, `sandboxes`, `shapes` and `durations`; what a schema says beyond a type is in `facts` and `kubernetes`.
Reading     `decode` turns JSON values into types and names every field that does not fit (`check`).
Judging     `validate` finds what the schema lets through although it cannot be followed (`rules`, `selectors`).
Following   `conversion` makes the policy of the upgrade decision from the upgrade settings, `rollout_conversion` the rest of it
            from a RolloutPolicy.
Publishing  `generate` makes the CRDs from the types (`schema`, `descriptions`).
"""
