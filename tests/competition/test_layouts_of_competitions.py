"""The layouts of well-known competitions, in miniature: all of it is understood without a card."""

from pathlib import Path

from layouts import images_by_id, load_files, table, train_labels


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
