"""Names the strategies that can blend runs, and the decisions. Imports nothing, so that `podium --help` stays fast.

blend_strategies.py fits them; choose_blend.py chooses one of them. choose_decision.py chooses the decision.
"""

# How the weights of the runs are found, the simplest first. "best" is the best single run, the baseline of the others.
BEST = "best"
WEIGHTINGS = ("equal", "convex", "greedy", BEST)
CALIBRATED = "-calibrated"
STRATEGIES = tuple(f"{name}{suffix}" for name in WEIGHTINGS for suffix in ("", CALIBRATED))
# Calibrated, with weights as far from equal ones as the images show: what is taken if nothing is better.
SHRUNK = "shrunk"
# Equal weights, but the mean of the logarithms, of a power, or of the ranks among the images: only tried on request.
GEOMETRIC, POWER, RANK = "geometric", "power", "rank"
# A model on top of the runs. Those with a weight per run, linear ones, and trees where tables say something of few
# images are tried unasked, and taken if they are clearly the best.
STACKED = "stacked"
BY_RUN, BY_CLASS, LINEAR, BOOSTED = (f"{STACKED}-{kind}" for kind in ("runs", "classes", "linear", "boosting"))
STACKS = (LINEAR, BY_RUN, BY_CLASS, BOOSTED)
ALL_STRATEGIES = (*STRATEGIES, SHRUNK, GEOMETRIC, POWER, RANK, STACKED, *STACKS)

AUTO = "auto"
TEST_SHARES = "test-shares"
DECISIONS = (AUTO, "none", TEST_SHARES)  # after the blend: what the metric rewards, none, or by the test's own shares
