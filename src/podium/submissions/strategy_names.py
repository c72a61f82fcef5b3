"""Names the strategies that can blend runs. Imports nothing, so that `podium --help` stays fast.

blend_strategies.py fits them; choose_blend.py chooses one of them.
"""

# How the weights of the runs are found, the simplest first. "best" is the best single run, the baseline of the others.
BEST = "best"
WEIGHTINGS = ("equal", "convex", "greedy", BEST)
CALIBRATED = "-calibrated"
STRATEGIES = tuple(f"{name}{suffix}" for name in WEIGHTINGS for suffix in ("", CALIBRATED))
