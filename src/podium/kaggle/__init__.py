"""Talks to Kaggle: downloads a competition, uploads submissions, trains and predicts on Kaggle's own machines.

In: a competition's slug, a submission or a run. Out: files in data/raw/, scores in history.csv, a trained run.
Read download.py first, then remote_train.py. A kernel is Kaggle's word for a script or notebook that runs there.

    client.py, polling.py                       Kaggle's own client; waiting until Kaggle has finished
    download.py, unpack_archives.py             podium data
    upload_submission.py, upload_history.py     podium submit --upload
    remote_train.py, remote_compete.py,         podium kaggle-train: a chain of kernels, whose last
      kernel_chain.py, fetch_run.py             output becomes the run, or the members, here
    bundle.py, offline_trial.py,                podium kaggle-bundle: packed, tried without a network,
      publish_bundle.py                         and brought to Kaggle with --upload
    pack_kernel.py, push_kernel.py              for both: packs the code, starts a kernel, follows it to its end
    inside_kernel.py                            runs on Kaggle's machines
"""
