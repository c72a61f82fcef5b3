"""Writes the models of a run as one file that other programs load: ONNX, or what torch.export saves.

In: a finished run. Out: the file, and a card in Markdown that says what it is and how to use it.
Read whole_model.py first (from pixels to answers), then export_run.py (writing and checking), then model_card.py;
int8.py makes a file smaller, int8_loss.py says at what cost.
"""
