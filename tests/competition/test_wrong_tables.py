"""Mistakes in tables are refused with the file, the line and the remedy."""

from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, TABLES, TRAIN, load_error, table
from tiny import assert_says

DETECTION = ("train.csv, line 1: the boxes of objects", "detection, which Podium does not do", 'target_column = "NAME"')


@pytest.mark.parametrize(
    ("train", "parts"),
    [
        (TRAIN + " ,cat\n", ("line 5: no id", "fill it in")),
        (TRAIN + "2,dog\n2,cat\n", ("lines 3 and 6: id '2' has two labels", "delete the wrong line")),
        (TRAIN + "1.jpg,dog\n", ("lines 2 and 5: '1' and '1.jpg' both mean train/1.jpg", "delete one")),
        (table("id,target", '"1', '2",dog', "3,cat"), ("(ids 1\\n2), the first on line 2",)),  # an open quote
        *(
            (table("id,target", "1,cat", f"2,{blank}", "3,dog"), ("line 3: no label", "fill it in or delete the line"))
            for blank in ("", " ", "\t", '""')
        ),
        *(
            (
                table("id,target", '1,"cat', '2,dog"', "3,cat").replace("\n", line_end),
                ("line 2: a label of several lines, 'cat...'", "close its quote"),
            )
            for line_end in ("\n", "\r\n")
        ),
        (TRAIN.replace("dog", "cat"), ("every training image has the label 'cat'", "target_column")),
        ("id\n1\n2\n3\n", ("'id' is the only column", 'train_table = "NAME"')),
        (
            table("id,colour,size", "1,a,b", "2,b,a", "3,b,b"),
            ("which of the columns colour, size holds the label", 'write target_column = "NAME" in', "it.toml"),
        ),
        *(
            (table(f"id,{columns}", *(f"{number},{cells}" for number in (1, 2, 3))), DETECTION)
            for columns, cells in {
                "width,height,bbox": '1024,1024,"[834.0, 222.0, 56.0, 36.0]"',
                "xmin,ymin,xmax,ymax,class": "1,2,3,4,car",
                "class_name,class_id,rad_id,x_min,y_min,x_max,y_max": "No finding,14,R11,,,,",
                "x,y,width,height,Target": "264,152,213,379,1",
                "PredictionString": "opacity 1 0 0 1 1",
            }.items()
        ),
    ],
)
def test_a_wrong_training_table_is_refused(tmp_path: Path, train: str, parts: tuple[str, ...]) -> None:
    assert_says(load_error(tmp_path, IMAGES, TABLES | {"train.csv": train}), *parts)


CHOOSE = 'sample_submission = "NAME"'


@pytest.mark.parametrize(
    ("sample", "parts"),
    [
        (SAMPLE + ",cat\n", ("line 4: no id", "fill it in")),
        (SAMPLE + "5,cat\n", ("line 4: id '5' appears twice", "download again")),
        (SAMPLE + "4.JPG,cat\n", ("lines 3 and 4: '4' and '4.JPG' both mean test/4.jpg",)),
        (table("id,target", '5,"cat', '4,cat"'), ("line 2: a cell of several lines", "close its quote")),
        ("id\n4\n5\n", ("only one column", CHOOSE)),
        *(
            (table(header, "5,cat", "4,cat"), ("line 1: this header cannot be copied", "save the table as plain CSV"))
            for header in ('id,"pre\ndict"', "\n\ufeffid,predict")
        ),
        (table("id,cat,bird", "4,0,0", "5,0,0"), ("no column for the class 'dog', the columns are cat, bird",)),
        (table(",id,cat,dog", "4,7,0.5,0.5", "5,8,0.5,0.5"), ("line 2: the column 'id' is not a class", CHOOSE)),
        (table("id,cat,dog,Usage", "4,.5,.5,Public", "5,.5,.5,x"), ("cell 'Public' is not a probability", CHOOSE)),
        (table("id,cat,dog,", "4,0.5,0.5,", "5,0.5,0.5,"), ("the column 'column 4' is not a class", CHOOSE)),
        (table("id,predict,Usage", "4,cat,Public", "5,cat,x"), ("the column 'predict' is not a class", CHOOSE)),
        (table("id,cat,dog,bird", "4,0,0,12", "5,0,0,1"), ("its cell '12' is not a probability", CHOOSE)),
    ],
)
def test_a_wrong_sample_submission_is_refused(tmp_path: Path, sample: str, parts: tuple[str, ...]) -> None:
    message = load_error(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert_says(message, "sample_submission.csv", *parts)
