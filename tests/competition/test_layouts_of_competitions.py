"""The layouts of well-known competitions, in miniature: all of it is understood without a card."""

import json
import os
from pathlib import Path

from layouts import images_by_id, load_error, load_files, raw_path, table, train_labels
from podium.competition.describe import describe


def test_cassava(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("image_id,label", "10.jpg,0", "11.jpg,1", "12.jpg,2", "13.jpg,3", "14.jpg,4"),
        "sample_submission.csv": table("image_id,label", "22.jpg,4"),
        "label_num_to_disease_map.json": '{"0": "Blight", "1": "Streak", "2": "Mottle", "3": "Mosaic", "4": "Healthy"}',
    }
    images = [*(f"train_images/{i}.jpg" for i in range(10, 15)), "test_images/22.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == ("0", "1", "2", "3", "4")
    assert competition.submission_format.wants == "labels"
    assert images_by_id(competition) == {"22.jpg": "test_images/22.jpg"}
    assert not competition.notes


def test_plant_pathology_2020(tmp_path: Path) -> None:
    classes = "healthy,multiple_diseases,rust,scab"
    tables = {
        "train.csv": table(
            f"image_id,{classes}", "Train_0,0,0,0,1", "Train_1,0,1,0,0", "Train_2,1,0,0,0", "Train_3,0,0,1,0"
        ),
        "test.csv": table("image_id", "Test_0", "Test_1"),
        "sample_submission.csv": table(f"image_id,{classes}", *(f"Test_{i},0.25,0.25,0.25,0.25" for i in (0, 1))),
    }
    names = [*(f"Train_{i}" for i in range(4)), "Test_0", "Test_1"]
    competition = load_files(tmp_path, [f"images/{name}.jpg" for name in names], tables)
    assert competition.classes == tuple(classes.split(","))
    assert competition.task.name == "one_label"
    assert train_labels(competition)["images/Train_1.jpg"] == "multiple_diseases"
    assert images_by_id(competition) == {"Test_0": "images/Test_0.jpg", "Test_1": "images/Test_1.jpg"}
    assert competition.submission_format.wants == "probs"
    assert not competition.notes


def test_histopathologic_cancer_detection(tmp_path: Path) -> None:
    tables = {
        "train_labels.csv": table("id,label", "f38a,0", "c18f,1", "755d,1"),
        "sample_submission.csv": table("id,label", "0b2e,0", "95ed,0"),
    }
    images = [f"train/{name}.tif" for name in ("f38a", "c18f", "755d")] + ["test/0b2e.tif", "test/95ed.tif"]
    competition = load_files(tmp_path, images, tables, 'metric = "roc_auc"')
    assert train_labels(competition) == {"train/f38a.tif": "0", "train/c18f.tif": "1", "train/755d.tif": "1"}
    assert competition.submission_format.wants == "probs"
    assert competition.classes == ("0", "1")
    assert not competition.notes


def test_aerial_cactus(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,has_cactus", "0004.jpg,1", "000c.jpg,1", "000d.jpg,0"),
        "sample_submission.csv": table("id,has_cactus", "000940.jpg,0.5", "0017.jpg,0.5"),
    }
    images = [f"train/train/{name}.jpg" for name in ("0004", "000c", "000d")]
    competition = load_files(tmp_path, [*images, "test/test/000940.jpg", "test/test/0017.jpg"], tables)
    assert competition.submission_format.wants == "probs"
    assert competition.classes == ("0", "1")
    assert images_by_id(competition)["0017.jpg"] == "test/test/0017.jpg"
    assert not competition.notes


def test_state_farm(tmp_path: Path) -> None:
    classes = [f"c{i}" for i in range(10)]
    tables = {
        "driver_imgs_list.csv": table("subject,classname,img", *(f"p002,{name},img_{name}.jpg" for name in classes)),
        "sample_submission.csv": table(
            "img," + ",".join(classes), "img_1.jpg" + ",0.1" * 10, "img_2.jpg" + ",0.1" * 10
        ),
    }
    images = [f"imgs/train/{name}/img_{name}.jpg" for name in classes]
    competition = load_files(tmp_path, [*images, "imgs/test/img_1.jpg", "imgs/test/img_2.jpg"], tables)
    assert competition.classes == tuple(classes)
    assert train_labels(competition) == dict(zip(images, classes, strict=True))
    assert competition.submission_format.wants == "probs"
    assert not competition.notes


def test_dog_breed_identification(tmp_path: Path) -> None:
    breeds = [f"breed_{'abcdefghij'[i // 12]}{'klmnopqrstuv'[i % 12]}" for i in range(120)]
    tables = {
        "labels.csv": table("id,breed", *(f"{i:04x},{breed}" for i, breed in enumerate(breeds))),
        "sample_submission.csv": table("id," + ",".join(breeds), "ffff" + ",0.0083" * 120),
    }
    images = [f"train/{i:04x}.jpg" for i in range(120)]
    competition = load_files(tmp_path, [*images, "test/ffff.jpg"], tables)
    assert competition.classes == tuple(breeds)
    assert competition.submission_format.wants == "probs"
    assert not competition.notes


def test_plant_seedlings(tmp_path: Path) -> None:
    images = ["train/Black-grass/0.png", "train/Maize/0.png", "train/Sugar beet/7.png", "test/00.png", "test/01.png"]
    tables = {"sample_submission.csv": table("file,species", "00.png,Sugar beet", "01.png,Sugar beet")}
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == ("Black-grass", "Maize", "Sugar beet")
    assert competition.submission_format.columns == ("file", "species")
    assert competition.submission_format.wants == "labels"
    assert not competition.notes


def test_invasive_species(tmp_path: Path) -> None:
    tables = {
        "train_labels.csv": table("name,invasive", "1,0", "2,1", "3,1"),
        "sample_submission.csv": table("name,invasive", "1,0.5", "2,0.5"),
    }
    images = [*(f"train/{i}.jpg" for i in (1, 2, 3)), "test/1.jpg", "test/2.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert images_by_id(competition) == {"1": "test/1.jpg", "2": "test/2.jpg"}
    assert train_labels(competition) == {"train/1.jpg": "0", "train/2.jpg": "1", "train/3.jpg": "1"}
    assert competition.submission_format.wants == "probs"
    assert not competition.notes


def test_leaf_classification(tmp_path: Path) -> None:
    species = [f"Acer_{'abcdefghi'[i // 11]}{'klmnopqrstu'[i % 11]}" for i in range(99)]
    tables = {
        "train.csv": table("id,species,margin1,shape1", *(f"{2 * i},{name},0.1,{i}" for i, name in enumerate(species))),
        "test.csv": table("id,margin1,shape1", "1,0.1,0.2", "3,0.1,0.2"),
        "sample_submission.csv": table("id," + ",".join(species), "1" + ",0.01" * 99, "3" + ",0.01" * 99),
    }
    images = [*(f"images/{2 * i}.jpg" for i in range(99)), "images/1.jpg", "images/3.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == tuple(species)
    assert images_by_id(competition) == {"1": "images/1.jpg", "3": "images/3.jpg"}
    assert not competition.notes


def test_paddy_disease(tmp_path: Path) -> None:
    tables = {
        "train.csv": table(
            "image_id,label,variety,age", "100.jpg,blast,ADT45,45", "101.jpg,hispa,ADT45,45", "102.jpg,normal,ADT45,45"
        ),
        "sample_submission.csv": table("image_id,label", "200.jpg,", "201.jpg,"),
    }
    images = ["train_images/blast/100.jpg", "train_images/hispa/101.jpg", "train_images/normal/102.jpg"]
    competition = load_files(tmp_path, [*images, "test_images/200.jpg", "test_images/201.jpg"], tables)
    assert competition.classes == ("blast", "hispa", "normal")
    assert train_labels(competition) == dict(zip(images, competition.classes, strict=True))
    assert competition.submission_format.wants == "labels"
    assert not competition.notes


def test_dogs_vs_cats_redux(tmp_path: Path) -> None:
    images = [f"train/{name}.{i}.jpg" for name in ("cat", "dog") for i in (0, 1)] + ["test/1.jpg", "test/2.jpg"]
    competition = load_files(tmp_path, images, {"sample_submission.csv": table("id,label", "1,0.5", "2,0.5")})
    assert competition.classes == ("cat", "dog")  # a single column holds the probability of the last one
    assert competition.submission_format.wants == "probs"


def test_cifar_10(tmp_path: Path) -> None:
    tables = {
        "trainLabels.csv": table("id,label", "1,frog", "2,truck", "3,cat"),
        "sampleSubmission.csv": table("id,label", "1,cat", "2,cat"),
    }
    images = [*(f"train/{i}.png" for i in (1, 2, 3)), "test/1.png", "test/2.png"]
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == ("cat", "frog", "truck")
    assert images_by_id(competition) == {"1": "test/1.png", "2": "test/2.png"}
    assert not competition.notes


def test_pawpularity(tmp_path: Path) -> None:
    marks = "Subject Focus,Eyes,Face,Near"
    rows = [f"{number:03x},0,1,1,0,{number * 7}" for number in range(1, 15)]
    tables = {
        "train.csv": table(f"Id,{marks},Pawpularity", *rows),
        "test.csv": table(f"Id,{marks}", "4128,1,1,1,1", "43a2,0,0,1,0"),
        "sample_submission.csv": table("Id,Pawpularity", "4128,67.2", "43a2,51.9"),
    }
    images = [*(f"train/{number:03x}.jpg" for number in range(1, 15)), "test/4128.jpg", "test/43a2.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert competition.task.name == "numbers"
    assert (competition.metric, competition.submission_format.wants) == ("rmse", "numbers")
    assert competition.classes == ("Pawpularity",)
    assert train_labels(competition)["train/002.jpg"] == "14"
    assert competition.submission_format.columns == ("Id", "Pawpularity")


def test_plant_traits_2024(tmp_path: Path) -> None:
    traits = ("X4", "X11", "X3112")
    rows = [f"{n},{n / 7:.3f}," + ",".join(f"{n / 3:.4f}" for _ in range(6)) for n in range(1, 15)]
    columns = [*(f"{name}_mean" for name in traits), *(f"{name}_sd" for name in traits)]
    tables = {
        "train.csv": table("id,WORLDCLIM_BIO1," + ",".join(columns), *rows),
        "test.csv": table("id,WORLDCLIM_BIO1", "201238668,8.7"),
        "sample_submission.csv": table("id," + ",".join(traits), "201238668,0,0,0"),
    }
    images = [*(f"train_images/{n}.jpeg" for n in range(1, 15)), "test_images/201238668.jpeg"]
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == ("X4_mean", "X11_mean", "X3112_mean")
    assert competition.submission_format.columns == ("id", *traits)
    assert train_labels(competition)["train_images/3.jpeg"] == "1.0000|1.0000|1.0000"


def test_galaxy_zoo(tmp_path: Path) -> None:
    header = "GalaxyID,Class1.1,Class1.2,Class1.3"
    rows = [f"{n},{n / 13:.6f},{1 - n / 13:.6f},0" for n in range(1, 13)]
    tables = {
        "training_solutions_rev1.csv": table(header, *rows),
        "all_zeros_benchmark.csv": table(header, "100018,0,0,0"),
    }
    images = [*(f"images_training_rev1/{n}.jpg" for n in range(1, 13)), "images_test_rev1/100018.jpg"]
    competition = load_files(tmp_path, images, tables, 'sample_submission = "all_zeros_benchmark.csv"')
    assert competition.task.name == "numbers"
    assert competition.classes == ("Class1.1", "Class1.2", "Class1.3")
    assert images_by_id(competition) == {"100018": "images_test_rev1/100018.jpg"}


def test_humpback_whale_identification(tmp_path: Path) -> None:
    whales = ["new_whale", "w_1287fbc", "w_98baff9", "w_7554f44", "w_1eafe46", "w_1eafe46"]
    tables = {
        "train.csv": table("Image,Id", *(f"{n}.jpg,{name}" for n, name in enumerate(whales))),
        "sample_submission.csv": table("Image,Id", *(f"{n}.jpg," + " ".join(whales[:5]) for n in (10, 11))),
    }
    images = [*(f"train/{n}.jpg" for n in range(6)), "test/10.jpg", "test/11.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert (competition.metric, competition.submission_format.wants) == ("map_at_5", "ranking")
    assert competition.submission_format.places == 5
    assert "the 5 most probable labels a row" in describe(competition)
    assert not competition.notes


def test_hotel_id_2021(tmp_path: Path) -> None:
    rows = [f"{n}.jpg,{n % 3},{36363 + n % 6},2018-05-05 21:01:29" for n in range(12)]
    tables = {
        "train.csv": table("image,chain,hotel_id,timestamp", *rows),
        "sample_submission.csv": table("image,hotel_id", "99e.jpg,36363 36364 36365 36366 36367"),
    }
    images = [*(f"train_images/{n % 3}/{n}.jpg" for n in range(12)), "test_images/99e.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert (competition.metric, competition.submission_format.places) == ("map_at_5", 5)
    assert len(competition.classes) == 6


def coco(numbers: range, folder: str, has_labels: bool, **keys: object) -> str:
    images = [{"id": f"im{n}", "file_name": f"{folder}im{n}.jpg", "width": 64, "location": n // 3} for n in numbers]
    annotations = [{"id": f"a{n}", "image_id": f"im{n}", "category_id": n % 3, "count": 1} for n in numbers]
    lists = {"images": images, "categories": [{"id": n, "name": f"animal {n}"} for n in range(3)]}
    return json.dumps({**keys, **({"annotations": annotations} if has_labels else {}), **lists})


def test_iwildcam_2020(tmp_path: Path) -> None:
    tables = {
        "iwildcam2020_train_annotations.json": coco(range(12), "", True),
        "iwildcam2020_test_information.json": coco(range(20, 22), "", False),
        "iwildcam2020_megadetector_results.json": json.dumps({"info": {}, "images": [{"id": "im1", "detections": []}]}),
        "sample_submission.csv": table("Id,Category", "im21,0", "im20,0"),
    }
    images = [*(f"train/im{n}.jpg" for n in range(12)), "test/im20.jpg", "test/im21.jpg"]
    competition = load_files(tmp_path, images, tables, 'group_column = "location"')
    assert competition.classes == ("0", "1", "2")
    assert competition.groups is not None
    assert competition.groups.nunique() == 4
    assert images_by_id(competition) == {"im21": "test/im21.jpg", "im20": "test/im20.jpg"}


def test_herbarium_2020(tmp_path: Path) -> None:
    """The ids of the sample are those of the test images in another file; names repeat in train/ and test/."""
    numbers = [(n, f"images/000/{n:02}/{n}00.jpg") for n in range(6)]
    images = [{"id": 1000 + n, "file_name": name} for n, name in numbers]
    annotations = [{"category_id": n % 2, "id": n, "image_id": 1000 + n, "region_id": 0} for n, _ in numbers]
    tests = [{"id": 2 - n, "file_name": name} for n, name in numbers[:3]]
    tables = {
        "nybg2020/train/metadata.json": json.dumps({"annotations": annotations, "categories": [], "images": images}),
        "nybg2020/test/metadata.json": json.dumps({"images": tests, "info": {}, "licenses": []}),
        "sample_submission.csv": table("Id,Predicted", "0,0", "1,0", "2,0"),
    }
    files = [f"nybg2020/train/{name}" for _, name in numbers] + [f"nybg2020/test/{name}" for _, name in numbers[:3]]
    competition = load_files(tmp_path, files, tables)
    assert train_labels(competition)["nybg2020/train/images/000/03/300.jpg"] == "1"
    assert images_by_id(competition)["0"] == "nybg2020/test/images/000/02/200.jpg"


def test_herbarium_2022(tmp_path: Path) -> None:
    images = [
        {"image_id": f"000{n % 2}__{n:03}", "file_name": f"000/0{n % 2}/000{n % 2}__{n:03}.jpg"} for n in range(6)
    ]
    annotations = [
        {"genus_id": 1, "category_id": n % 2, "image_id": image["image_id"]} for n, image in enumerate(images)
    ]
    tests = [{"image_id": str(n), "file_name": f"000/test-{n:06}.jpg", "license": 0} for n in range(2)]
    tables = {
        "train_metadata.json": json.dumps({"annotations": annotations, "images": images, "genera": []}),
        "test_metadata.json": json.dumps(tests),
        "sample_submission.csv": table("Id,Predicted", "0,42", "1,42"),
    }
    files = [f"train_images/{image['file_name']}" for image in images]
    files += [f"test_images/{image['file_name']}" for image in tests]
    competition = load_files(tmp_path, files, tables)
    assert train_labels(competition)["train_images/000/01/0001__003.jpg"] == "1"
    assert images_by_id(competition)["1"] == "test_images/000/test-000001.jpg"


def test_inaturalist_2019(tmp_path: Path) -> None:
    tables = {
        "train2019.json": coco(range(9), "train_val2019/Birds/1/", True, info={"year": 2019}),
        "val2019.json": coco(range(9, 12), "train_val2019/Birds/1/", True, info={"year": 2019}),
        "test2019.json": coco(range(20, 22), "test2019/", False, info={"year": 2019}),
        "kaggle_sample_submission.csv": table("id,predicted", "im20,0", "im21,0"),
    }
    images = [*(f"train_val2019/Birds/1/im{n}.jpg" for n in range(12)), "test2019/im20.jpg", "test2019/im21.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert len(competition.train) == 12
    assert "the 3 rows of val2019.json join those of train2019.json" in competition.notes
    assert competition.submission_format.wants == "labels"


def test_a_pipe_is_not_read_as_json(tmp_path: Path) -> None:
    files = {"train.csv": table("id,label", "1,a", "2,b"), "sample_submission.csv": table("id,label", "3,a")}
    images = ["train/1.jpg", "train/2.jpg", "test/3.jpg"]
    load_files(tmp_path, images, files)
    os.mkfifo(raw_path(tmp_path, "notes.json"))
    assert load_files(tmp_path, [], {}).classes == ("a", "b")


def test_boxes_in_annotations_make_a_detection(tmp_path: Path) -> None:
    content = json.loads(coco(range(6), "", True))
    for annotation in content["annotations"]:
        annotation["bbox"] = [0, 0, 5, 5]
    tables = {"train.json": json.dumps(content), "sample_submission.csv": table("Id,Category", "im20,0")}
    images = [*(f"train/im{n}.jpg" for n in range(6)), "test/im20.jpg"]
    assert "a competition of detection" in load_error(tmp_path, images, tables)
    tables["train.json"] = '{"annotations": [{"image_id": 1}], "images": 7}'
    assert "train.json: not a list of images with their labels" in load_error(tmp_path, images, tables)


def test_human_protein_atlas_has_a_file_for_each_channel(tmp_path: Path) -> None:
    names, colours = [f"0{n}ab-{n}" for n in range(6)], ("blue", "green", "red", "yellow")
    tables = {
        "train.csv": table("Id,Target", *(f"{name},{'16 0' if n % 2 else n % 3}" for n, name in enumerate(names[:4]))),
        "sample_submission.csv": table("Id,Predicted", *(f"{name},0" for name in names[4:])),
    }
    images = [f"{'train' if name in names[:4] else 'test'}/{name}_{colour}.png" for name in names for colour in colours]
    competition = load_files(tmp_path, images, tables, 'task = "several_labels"')
    assert competition.train["image"].iloc[1] == "train/01ab-1_red.png#channels=red+green+blue"
    assert images_by_id(competition)[names[5]] == f"test/{names[5]}_red.png#channels=red+green+blue"
    assert "an image has several files: the channels red, green, blue are used, 6 files are not" in competition.notes
    assert not any("neither" in note or "in no row" in note for note in competition.notes)
    before = competition.train_hash
    raw_path(tmp_path, "train/01ab-1_green.png").write_bytes(b"longer than before, but still no image that is read")
    assert load_files(tmp_path, [], {}, 'task = "several_labels"').train_hash != before


def test_ubc_ocean_has_thumbnails_called_after_the_ids(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("image_id,label,is_tma", *(f"{n},{'HGSC' if n % 2 else 'EC'},False" for n in range(4, 10))),
        "sample_submission.csv": table("image_id,label", "41,HGSC"),
    }
    images = [*(f"train_thumbnails/{n}_thumbnail.png" for n in range(4, 10)), "test_thumbnails/41_thumbnail.png"]
    competition = load_files(tmp_path, images, tables, 'target_column = "label"')
    assert train_labels(competition)["train_thumbnails/7_thumbnail.png"] == "HGSC"
    assert images_by_id(competition) == {"41": "test_thumbnails/41_thumbnail.png"}
