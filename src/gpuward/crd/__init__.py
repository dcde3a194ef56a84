"""NVIDIA's custom resources as types: ClusterPolicy and NVIDIADriver, their schema, decoding and validation."""
