"""Trains, competes and predicts on Kaggle's own machines, in kernels: Kaggle's word for a script that runs there.

In: a recipe and folds, or finished runs. Out: the trained run here, or a bundle for a competition without a network.
Read remote_train.py first; inside_kernel.py is what runs there.

    remote_train.py, remote_compete.py,         podium kaggle-train: a chain of kernels, whose last
      kernel_chain.py, fetch_run.py             output becomes the run, or the members, here
    bundle.py, offline_trial.py,                podium kaggle-bundle: packed, tried without a network,
      publish_bundle.py                         and brought to Kaggle with --upload
    pack_kernel.py, push_kernel.py              for both: packs the code, starts a kernel, follows it to its end
"""
