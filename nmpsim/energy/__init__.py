"""Energy and area of a device: estimates of each action and hardware block, and of a run.

``actions.toml`` lists the actions that a run counts and the hardware blocks of a device. The device
file has an estimate for each of them (:mod:`nmpsim.energy.tables`).
"""
