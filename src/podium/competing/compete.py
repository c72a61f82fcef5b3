"""Takes a competition and a time, and comes back with the best submission that Podium can make in it.

    podium compete [-c SLUG] [--budget 2h]

A frozen head comes first, so that there is a submission within minutes. Then the step with the largest expected
gain of the blend per minute (next_step.py), again and again, as long as there is time. Each member is an ordinary run.
Writes submissions/<slug>/compete.csv and its lineage (best_csv.py), and what ledger.py describes. The same command goes
on, also with more time.
"""

from podium.basics.terminal import aside, duration, say
from podium.competing.choices import CompeteRequest
from podium.competing.ending import Outcome, run_to_the_end
from podium.competing.journey import Journey
from podium.competing.progress_table import ProgressTable
from podium.competing.understand import understand
from podium.competition.load import Competition
from podium.models.device import is_cpu, pick_device
from podium.saved_runs.ledger import LOG, STARTED, Ledger
from podium.tasks.metrics import name_in_compete

CPU_BUDGET, GPU_BUDGET = 1_800.0, 7_200.0  # seconds


def compete(competition: Competition, request: CompeteRequest) -> Outcome:
    """Trains, blends and submits for the time of the request; goes on with what an earlier call has done."""
    ledger = Ledger(competition.slug, competition.root)
    with ledger.open():
        budget = budget_of(ledger, request)
        worked = f", of which {duration(ledger.worked)} are worked already" if ledger.lines else ""
        default = "" if request.budget else " (BUDGET=2h or --budget 2h gives more)"
        say(f"podium: competing for {duration(budget)}{default}{worked}; Ctrl-C stops, the same command goes on")
        metric = name_in_compete(competition.metric, competition.task)
        with aside(ledger.folder / LOG) as spoken, ProgressTable(metric, budget, spoken) as shown:
            shown.worked = lambda: ledger.worked
            data = competition.train_hash[:16]
            ledger.add(STARTED, budget=budget, data=data, **({"on": request.on} if request.on else {}))
            shown.begin("reading and decoding the images")
            understand(competition, shown.tell)
            return run_to_the_end(Journey(competition, request, ledger, budget, shown))


def budget_of(ledger: Ledger, request: CompeteRequest) -> float:
    """Returns the time of the request, or that of the call before, or what suits the device."""
    given = [line["budget"] for line in ledger.of(STARTED)]
    if request.budget is not None:
        return request.budget
    if given:
        return float(given[-1])
    return CPU_BUDGET if is_cpu(pick_device(request.machine.device)) else GPU_BUDGET
