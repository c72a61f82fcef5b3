"""The plan of a search: models, options and folds, made in one place from what the user asked for."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize
from podium.options.recipe import Options, Recipe, only_in_training
from podium.options.recipe_defaults import set_by_level
from podium.training.plan import Plan, make_plan, with_options, with_run
from podium.training.request import Request, check_before_plan
from podium_annex.searching.search_request import SearchRequest, folder_of


@dataclass(frozen=True)
class SearchPlan:
    request: SearchRequest
    base: Plan  # of the first model; its competition, folds and data serve all trials
    models: tuple[str, ...]
    folds: tuple[int, ...]  # that the search uses
    last_fold: int  # that it does not use

    @property
    def folder(self) -> Path:
        return folder_of(self.base.competition.slug, self.base.competition.root, self.request.name)

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The options that the user and the card give, also by a level."""
        given = {**self.base.competition.recipe, **self.request.options}
        return frozenset({*given, *set_by_level(given)})

    def plan_of(self, options: Options, suffix: str, *folds: int) -> Plan:
        """Returns the plan of the run `<search>-<suffix>` with these options, besides those that the user gives."""
        size = {"image_size": self.request.sizes[0]} if self.request.sizes else {}
        plan = with_options(replace(self.base, folds_to_train=folds), {**self.request.options, **size, **options})
        return with_run(plan, replace(plan.run, path=plan.run.path.with_name(f"{self.request.name}-{suffix}")))

    def defaults_of(self, model: str) -> Recipe:
        return self.plan_of({"model": model}, "defaults").recipe

    def look_of(self, model: str, size: ImageSize | None) -> Plan:
        """Returns the plan of a frozen head of the first fold."""
        given = {name: value for name, value in self.request.options.items() if name not in only_in_training()}
        heads = replace(self, request=replace(self.request, options=given))
        sizes, ending = ({}, "") if size is None else ({"image_size": size}, f"-{size}")
        return heads.plan_of({"model": model, "linear": True, **sizes}, f"look-{model}{ending}", self.folds[0])

    def settings(self) -> dict[str, Any]:
        """Returns what must stay the same when the search goes on."""
        identity, request = self.base.identity(), self.request
        facts = {name: identity[name] for name in ("competition", "folds_sha256", "corrections_sha256")}
        settings = {
            "models": self.models,
            "sizes": request.sizes,
            "options": dict(request.options),
            "card": dict(self.base.competition.recipe),
            "folds": self.folds,
            "last_fold": self.last_fold,
            "metric": self.base.competition.metric,
            "data_sha256": self.base.competition.train_hash,
            **facts,
        }
        return dict(json.loads(json.dumps(settings)))


def plan_search(slug: str, root: Path, request: SearchRequest, models: tuple[str, ...]) -> SearchPlan:
    single = Request(
        options={**request.options, "model": models[0]},
        folds=request.folds,
        name=f"{request.name}-defaults",
        machine=request.machine,
    )
    base = make_plan(check_before_plan(slug, root, single))
    if len(base.folds_to_train) < 2:
        raise PodiumError(f"{slug} has one fold, but a search needs one to search on and another to judge: make more")
    *folds, last_fold = base.folds_to_train
    plan = SearchPlan(request, base, models, tuple(folds), last_fold)
    for model in models:  # a task that does not fit an option, a model that cannot have it
        plan.defaults_of(model)
    return plan
