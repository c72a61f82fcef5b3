"""What is drawn after several runs are trained: the picture that `podium compare --picture` draws, too."""

from podium_annex.report.comparison_picture import draw_comparison

AFTER_COMPARING = draw_comparison
