"""Draws where a model looks in the images of a report: the attention of its class token, or Grad-CAM.

Each image is explained by the model that has predicted it, which has not seen it.
"""

import base64
from collections.abc import Sequence

import numpy as np
import torch

from podium.basics.errors import PodiumError
from podium.basics.terminal import in_brief, progress_bar, say
from podium.competition.load import Competition
from podium.images.decode import read_image
from podium.models.cpu_threads import threads
from podium.models.device import CPU
from podium.models.normalise import Normaliser
from podium.saved_runs.regions_of_run import as_seen
from podium.saved_runs.run_folder import Run
from podium.training.fold_model import open_model, prepare
from podium_annex.explain.choose_explainer import choose_explainer
from podium_annex.explain.draw_pictures import highlight
from podium_annex.report.gallery import SIDE, ImageCard, jpeg_of, shrink_to

MOST_IMAGES = 96  # with a large model, each takes most of a second on a CPU
BATCH = 8


def add_heat(cards: Sequence[ImageCard], run: Run, competition: Competition) -> str:
    """Adds a picture to the first mistakes and suspects; returns what it shows, or nothing if the model has none."""
    chosen = [
        card for card in cards if card.thumbnail and card.predicted and (card.suspect or card.label != card.predicted)
    ]
    chosen, description = chosen[:MOST_IMAGES], ""
    with in_brief():  # `podium report` has no --threads that this could advise
        threads.settle()
    with progress_bar(total=len(chosen), desc="where it looks", unit="image") as bar:
        for fold in sorted({card.fold for card in chosen}):
            own = [card for card in chosen if card.fold == fold]
            train = as_seen(competition, run, fold).train
            path_of = dict(zip(train["id"], map(competition.folder.joinpath, train["image"]), strict=True))
            try:
                model, spec = open_model(run, fold)
                explain, how = choose_explainer(model, spec.test_size)
            except PodiumError as problem:
                say(f"podium: the report shows no attention: {problem}")
                return ""
            if spec.channels:
                say("podium: the report shows no attention: this run sees other channels than red, green and blue")
                return ""
            description = f"where the model looks ({how}, most confident mistakes)"
            normalise = Normaliser(spec, CPU)
            for start in range(0, len(own), BATCH):
                batch = own[start : start + BATCH]
                pixels = [prepare(read_image(path_of[card.id], spec.value_range), spec) for card in batch]
                maps = explain(model, normalise(torch.from_numpy(np.stack(pixels))))
                for card, image, values in zip(batch, pixels, maps, strict=True):
                    picture = shrink_to(np.asarray(highlight(image, values), np.uint8), SIDE)
                    card.heat = base64.b64encode(jpeg_of(picture)).decode()
                bar.update(len(batch))
    return description
