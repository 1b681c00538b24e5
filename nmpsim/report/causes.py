"""What cycles went into: the keys of `stalls`, `core_cycles` and `critical_path`."""

ACTIVITIES = (
    "control",
    "wait_load",
    "wait_store",
    "wait_mac",
    "wait_vector",
    "barrier",
    "semaphore",
    "idle",
)
"""What control cores did; together they are cores times cycles."""

CAUSES = (
    "mac",
    "vector",
    "load",
    "store",
    "contention",
    "imbalance",
    "unused",
    "barrier",
    "semaphore",
    "idle",
    "control",
)
"""Where the cycles of cores went: each has one cause, together they are cores times cycles."""

PATH_CAUSES = (
    "mac",
    "vector",
    "dram_service",
    "row_miss",
    "latency",
    "dma_start",
    "control",
    "barrier",
    "semaphore",
)
"""What the cycles of the critical path were for; together they are the cycles."""
