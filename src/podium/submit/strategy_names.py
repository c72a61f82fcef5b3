"""Names the strategies that can blend runs. Imports nothing, so that `podium --help` stays fast.

blend_strategies.py fits them; choose_blend.py chooses one of them.
"""

WEIGHTINGS = ("equal", "convex", "greedy")  # how the weights of the runs are found, the simplest first
CALIBRATED = "-calibrated"
STRATEGIES = tuple(f"{name}{suffix}" for name in WEIGHTINGS for suffix in ("", CALIBRATED))
