"""The drivers of NVIDIADrivers."""
