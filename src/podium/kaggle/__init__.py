"""Talks to Kaggle: downloads a competition, uploads submissions.

In: a competition's slug, a submission. Out: files in data/raw/, scores in history.csv.
Read download.py first. podium_annex/kaggle_machines trains and predicts on Kaggle's own machines.

    client.py, polling.py                       Kaggle's own client; waiting until Kaggle has finished
    download.py, unpack_archives.py             podium data
    upload_submission.py, upload_history.py     podium submit --upload
"""
