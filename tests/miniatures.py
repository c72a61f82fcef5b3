"""Image competitions in miniature: files with tiny pictures whose colour shows the answer, and how each is graded."""

import colorsys
import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import graders
from contained import write_bson, write_tfrecord
from graders import Grading

TRAIN, TEST = range(60), range(100, 124)  # the numbers of the images
Drawn = list[tuple[int, str]]  # numbers, and their labels
Tagged = list[tuple[int, set[str]]]
SEVEN = range(1, 8)  # the colours that up to three tags make


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def picture(self, name: str, colour: Sequence[float], seed: int) -> None:
        """Writes a file of the kind that its name says, of this colour (0 to 1); grey ones show the brightness."""
        self.path(name).write_bytes(picture_bytes(name, colour, seed))

    def table(self, name: str, header: str, rows: Iterable[Sequence[object]]) -> None:
        with self.path(name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header.split(","), *rows])

    def json(self, name: str, content: object) -> None:
        self.path(name).write_text(json.dumps(content))

    def draw(self, labels: Sequence[str], train: str, test: str) -> tuple[Drawn, Drawn]:
        """Writes pictures in the colours of labels, at paths with {number} and {label}; returns what was drawn."""
        drawn: tuple[Drawn, Drawn] = ([], [])
        for numbers, place, rows in ((TRAIN, train, drawn[0]), (TEST, test, drawn[1])):
            for number in numbers:
                which = number % len(labels)
                self.picture(place.format(number=number, label=labels[which]), colour_of(which, len(labels)), number)
                rows.append((number, labels[which]))
        return drawn

    def draw_tags(self, names: Sequence[str], train: str, test: str) -> tuple[Tagged, Tagged]:
        """Writes pictures whose red, green and blue show which of three tags are there, one at least."""
        drawn: tuple[Tagged, Tagged] = ([], [])
        for numbers, place, rows in ((TRAIN, train, drawn[0]), (TEST, test, drawn[1])):
            for number in numbers:
                bits = [SEVEN[number % 7] >> bit & 1 for bit in range(3)]
                self.picture(place.format(number=number), [0.1 + 0.75 * bit for bit in bits], number)
                rows.append((number, {name for name, bit in zip(names, bits, strict=True) if bit}))
        return drawn


def colour_of(which: int, count: int) -> tuple[float, float, float]:
    """Returns a colour for each of several labels: as different in brightness as in hue."""
    return colorsys.hsv_to_rgb(0.8 * which / count, 0.8, 0.3 + 0.6 * which / max(count - 1, 1))


def picture_bytes(name: str, colour: Sequence[float], seed: int, side: int = 24) -> bytes:
    noise = np.random.default_rng(seed).normal(0, 12, (side, side, 3))
    pixels: NDArray[np.uint8] = (np.array(colour) * 255 + noise).clip(0, 255).astype(np.uint8)
    kind, file = name.rpartition(".")[2], io.BytesIO()
    if kind == "npy":
        np.save(file, np.repeat(pixels.mean(axis=2)[None] / 255, 6, axis=0).astype(np.float16))
    elif kind == "dcm":
        write_dicom(file, pixels.mean(axis=2).astype(np.uint16) * 16)
    else:
        Image.fromarray(pixels).save(file, {"png": "PNG", "tif": "TIFF"}.get(kind, "JPEG"))
    return file.getvalue()


def write_dicom(file: io.BytesIO, values: NDArray[np.uint16]) -> None:
    import pydicom

    content = pydicom.dataset.Dataset()
    content.file_meta = pydicom.dataset.FileMetaDataset()
    content.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    content.SOPClassUID = content.file_meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    content.SOPInstanceUID = content.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    content.Rows, content.Columns = values.shape
    content.SamplesPerPixel, content.PhotometricInterpretation, content.PixelRepresentation = 1, "MONOCHROME2", 0
    content.BitsAllocated, content.BitsStored, content.HighBit = 16, 12, 11
    content.WindowCenter, content.WindowWidth = 2048, 4096
    content.PixelData = values.tobytes()
    content.save_as(file, enforce_file_format=True)


# --- one label ---------------------------------------------------------------------------------------


def aerial_cactus(files: Files) -> Grading:
    train, test = files.draw(["0", "1"], "train/train/{number:04x}.jpg", "test/test/{number:04x}.jpg")
    files.table("train.csv", "id,has_cactus", [(f"{n:04x}.jpg", label) for n, label in train])
    files.table("sample_submission.csv", "id,has_cactus", [(f"{n:04x}.jpg", 0.5) for n, _ in test])
    truth = {f"{n:04x}.jpg": int(label) for n, label in test}
    return Grading(truth, graders.shares, graders.auc, "roc_auc")


def alaska2(files: Files) -> Grading:
    ways = ("Cover", "JMiPOD", "JUNIWARD", "UERD")
    numbers = range(1, 40, 2)  # the others became test images
    for number in numbers:
        for which, way in enumerate(ways):
            files.picture(f"{way}/{number:05d}.jpg", colour_of(which > 0, 2), 4 * number + which)
    for number in TEST:
        files.picture(f"Test/{number:04d}.jpg", colour_of(number % 3 == 0, 2), number)
    files.table("sample_submission.csv", "Id,Label", [(f"{n:04d}.jpg", 0) for n in TEST])
    truth = {f"{n:04d}.jpg": int(n % 3 == 0) for n in TEST}
    groups = {f"{way}/{n:05d}.jpg": str(n) for n in numbers for way in ways}
    return Grading(truth, graders.shares, graders.weighted_auc, "weighted_auc", groups=groups)


def aptos(files: Files) -> Grading:
    train, test = files.draw(list("01234"), "train_images/{number:012x}.png", "test_images/{number:012x}.png")
    files.table("train.csv", "id_code,diagnosis", [(f"{n:012x}", label) for n, label in train])
    files.table("test.csv", "id_code", [(f"{n:012x}",) for n, _ in test])
    files.table("sample_submission.csv", "id_code,diagnosis", [(f"{n:012x}", 0) for n, _ in test])
    truth = {f"{n:012x}": label for n, label in test}
    return Grading(truth, graders.label, graders.quadratic_kappa, "quadratic_kappa", set("01234"))


def cassava(files: Files) -> Grading:
    train, test = files.draw(list("01234"), "train_images/{number}.jpg", "test_images/{number}.jpg")
    files.json("label_num_to_disease_map.json", {str(n): f"disease {n}" for n in range(5)})
    files.table("train.csv", "image_id,label", [(f"{n}.jpg", label) for n, label in train])
    files.table("sample_submission.csv", "image_id,label", [(f"{n}.jpg", 4) for n, _ in test])
    for name, numbers in (("train", TRAIN), ("test", TEST)):  # the same pictures again
        examples = [{"image": (files.folder / f"{name}_images/{n}.jpg").read_bytes()} for n in numbers]
        write_tfrecord(files.path(f"{name}_tfrecords/ld_{name}00-{len(numbers)}.tfrec"), examples)
    truth = {f"{n}.jpg": label for n, label in test}
    return Grading(truth, graders.label, graders.accuracy, "accuracy", set("01234"))


def cdiscount(files: Files) -> Grading:
    labels = [1000010653, 1000004079, 1000018296]
    for name, numbers in (("train", TRAIN), ("test", TEST), ("train_example", TRAIN[:10])):
        products = []
        for n in numbers:
            pictures = [
                {"picture": picture_bytes("x.jpg", colour_of(n % 3, 3), n + 1000 * k)} for k in range(1 + n % 4)
            ]
            category = {} if name == "test" else {"category_id": labels[n % 3]}
            products.append({"_id": n, **category, "imgs": pictures})
        write_bson(files.path(f"{name}.bson"), products)
    files.table("category_names.csv", "category_id,category_level1", [(label, f"level {label}") for label in labels])
    files.table("sample_submission.csv", "_id,category_id", [(n, labels[0]) for n in TEST])
    truth = {str(n): str(labels[n % 3]) for n in TEST}
    return Grading(truth, graders.label, graders.accuracy, "accuracy", set(map(str, labels)))


def dog_breed(files: Files) -> Grading:
    breeds = ["affenpinscher", "beagle", "boxer", "collie"]
    train, test = files.draw(breeds, "train/{number:032x}.jpg", "test/{number:032x}.jpg")
    files.table("labels.csv", "id,breed", [(f"{n:032x}", label) for n, label in train])
    files.table("sample_submission.csv", ",".join(["id", *breeds]), [(f"{n:032x}", *[0.25] * 4) for n, _ in test])
    truth = {f"{n:032x}": label for n, label in test}
    return Grading(truth, graders.distribution, graders.log_loss_of_columns, "log_loss")


def dogs_vs_cats(files: Files) -> Grading:
    _, test = files.draw(["cat", "dog"], "train/{label}.{number}.jpg", "test/{number}.jpg")
    files.table("sample_submission.csv", "id,label", [(n, 0.5) for n, _ in test])
    truth = {str(n): int(label == "dog") for n, label in test}
    return Grading(truth, graders.shares, graders.log_loss, "log_loss")


def herbarium_2020(files: Files) -> Grading:
    train, test = files.draw(
        ["0", "1", "17"], "nybg2020/train/images/000/{label}/{number}.jpg", "nybg2020/test/images/000/{number}.jpg"
    )
    images = [{"id": n, "file_name": f"images/000/{label}/{n}.jpg", "license": 1} for n, label in train]
    annotations = [{"category_id": int(label), "id": n, "image_id": n, "region_id": n % 3} for n, label in train]
    categories = [{"family": "Fée", "genus": "g", "id": int(label), "name": f"n {label}"} for label in ("0", "1", "17")]
    whole = {"annotations": annotations, "categories": categories, "images": images, "info": {}, "licenses": []}
    files.path("nybg2020/train/metadata.json").write_text(json.dumps(whole, ensure_ascii=False), encoding="latin-1")
    files.json("nybg2020/test/metadata.json", {"images": [{"id": n, "file_name": f"images/000/{n}.jpg"} for n in TEST]})
    files.table("sample_submission.csv", "Id,Predicted", [(n, 0) for n, _ in test])
    truth = {str(n): label for n, label in test}
    return Grading(truth, graders.label, graders.macro_f1, "macro_f1", {"0", "1", "17"})


def herbarium_2021(files: Files) -> Grading:
    train, test = files.draw(
        ["0", "1", "15504"], "train/images/000/{label}/{number}.jpg", "test/images/000/{number}.jpg"
    )
    images = [{"id": str(n), "file_name": f"images/000/{label}/{n}.jpg", "license": 0} for n, label in train]
    annotations = [
        {"category_id": int(label), "id": str(n), "image_id": str(n), "institution_id": 0} for n, label in train
    ]
    categories = [
        {"family": "f", "id": int(label), "name": f"n {label}", "order": "o"} for label in ("0", "1", "15504")
    ]
    files.json("train/metadata.json", {"annotations": annotations, "categories": categories, "images": images})
    files.json("test/metadata.json", {"images": [{"id": str(n), "file_name": f"images/000/{n}.jpg"} for n in TEST]})
    files.table("sample_submission.csv", "Id,Predicted", [(n, 0) for n, _ in test])
    truth = {str(n): label for n, label in test}
    return Grading(truth, graders.label, graders.macro_f1, "macro_f1", {"0", "1", "15504"})


def herbarium_2022(files: Files) -> Grading:
    labels = ["0", "1", "42"]
    train, test = files.draw(
        labels, "train_images/000/{label:0>2}/{number:05d}.jpg", "test_images/000/test-{number:06d}.jpg"
    )
    images = [{"image_id": f"{n:05d}", "file_name": f"000/{label:0>2}/{n:05d}.jpg", "license": 0} for n, label in train]
    annotations = [
        {"genus_id": 1, "institution_id": n % 4, "category_id": int(label), "image_id": f"{n:05d}"}
        for n, label in train
    ]
    categories = [{"category_id": int(label), "scientificName": f"n {label}", "genus_id": 1} for label in labels]
    files.json("train_metadata.json", {"annotations": annotations, "images": images, "categories": categories})
    files.json("test_metadata.json", [{"image_id": str(n), "file_name": f"000/test-{n:06d}.jpg"} for n in TEST])
    files.table("sample_submission.csv", "Id,Predicted", [(n, 42) for n, _ in test])
    truth = {str(n): label for n, label in test}
    return Grading(truth, graders.label, graders.macro_f1, "macro_f1", set(labels))


def histopathologic(files: Files) -> Grading:
    train, test = files.draw(["0", "1"], "train/{number:040x}.tif", "test/{number:040x}.tif")
    files.table("train_labels.csv", "id,label", [(f"{n:040x}", label) for n, label in train])
    files.table("sample_submission.csv", "id,label", [(f"{n:040x}", 0) for n, _ in test])
    truth = {f"{n:040x}": int(label) for n, label in test}
    return Grading(truth, graders.shares, graders.auc, "roc_auc")


def invasive_species(files: Files) -> Grading:
    train, test = files.draw(["0", "1"], "train/{number}.jpg", "test/{number}.jpg")
    files.table("train_labels.csv", "name,invasive", train)
    files.table("sample_submission.csv", "name,invasive", [(n, 0.5) for n, _ in test])
    return Grading({str(n): int(label) for n, label in test}, graders.shares, graders.auc, "roc_auc")


def inaturalist_2019(files: Files) -> Grading:
    labels = ["0", "1", "1009"]
    train, test = files.draw(labels, "train_val2019/Birds/{label}/{number:032x}.jpg", "test2019/{number:032x}.jpg")
    categories = [{"id": int(label), "name": f"n {label}"} for label in labels]
    for name, rows in (("train", train[:45]), ("val", train[45:])):
        images = [{"id": n, "file_name": f"train_val2019/Birds/{label}/{n:032x}.jpg"} for n, label in rows]
        annotations = [{"id": n, "image_id": n, "category_id": int(label)} for n, label in rows]
        files.json(f"{name}2019.json", {"images": images, "annotations": annotations, "categories": categories})
    files.json("test2019.json", {"images": [{"id": n, "file_name": f"test2019/{n:032x}.jpg"} for n in TEST]})
    files.table("kaggle_sample_submission.csv", "id,predicted", [(n, 0) for n, _ in test])
    truth = {str(n): label for n, label in test}
    return Grading(truth, graders.label, graders.accuracy, "accuracy", set(labels))


def iwildcam_2019(files: Files) -> Grading:
    labels = ["0", "19", "3"]
    train, test = files.draw(labels, "train_images/{number:08x}.jpg", "test_images/{number:08x}.jpg")
    header = (
        "category_id,date_captured,file_name,frame_num,id,location,rights_holder,seq_id,seq_num_frames,width,height"
    )
    rest = ("Justin Brown", "seq", 3, 24, 24)
    rows = [(label, f"2011-05-{1 + n // 3:02d}", f"{n:08x}.jpg", 1, f"{n:08x}", camera(n), *rest) for n, label in train]
    files.table("train.csv", header, rows)
    beside = [(f"2012-05-{1 + n % 9:02d}", f"{n:08x}.jpg", 1, f"{n:08x}", camera(n), *rest) for n in TEST]
    files.table("test.csv", header.partition(",")[2], beside)
    files.table("sample_submission.csv", ",Id,Category", [(row, f"{n:08x}", 0) for row, n in enumerate(TEST)])
    truth, groups = {f"{n:08x}": label for n, label in test}, {f"{n:08x}.jpg": camera(n) for n in TRAIN}
    return Grading(truth, graders.label, graders.macro_f1, "macro_f1", set(labels), "Id", groups)


def camera(number: int) -> str:
    """Returns the place, patient or driver of an image: those of the test are others."""
    return str(number // 6 if number in TRAIN else 50 + number % 6)


def iwildcam_2020(files: Files) -> Grading:
    labels = ["0", "2", "371"]
    train, test = files.draw(labels, "train/{number:08x}.jpg", "test/{number:08x}.jpg")
    categories = [{"id": int(label), "name": f"animal {label}"} for label in labels]

    def images(drawn: Drawn) -> list[dict[str, object]]:
        return [
            {"id": f"{n:08x}", "file_name": f"{n:08x}.jpg", "location": int(camera(n)), "seq_id": f"s{n // 3}"}
            for n, _ in drawn
        ]

    annotations = [{"id": f"a{n}", "image_id": f"{n:08x}", "category_id": int(label), "count": 1} for n, label in train]
    content = {"annotations": annotations, "images": images(train), "categories": categories, "info": {}}
    files.json("iwildcam2020_train_annotations.json", content)
    files.json("iwildcam2020_test_information.json", {"images": images(test), "categories": categories, "info": {}})
    detections = [{"id": f"{n:08x}", "detections": [], "max_detection_conf": 0} for n in (*TRAIN, *TEST)]
    files.json("iwildcam2020_megadetector_results.json", {"info": {}, "images": detections})
    files.table("sample_submission.csv", "Id,Category", [(f"{n:08x}", 0) for n, _ in test])
    truth, groups = {f"{n:08x}": label for n, label in test}, {f"{n:08x}": camera(n) for n in TRAIN}
    return Grading(truth, graders.label, graders.accuracy, "accuracy", set(labels), groups=groups)


def leaf(files: Files) -> Grading:
    species = ["Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri", "Ulmus_Bergmanniana"]
    train, test = files.draw(species, "images/{number}.jpg", "images/{number}.jpg")
    names = [f"{kind}{number}" for kind in ("margin", "shape", "texture") for number in range(1, 5)]
    own = {n: [round(0.01 * (n % 7) + 0.001 * k, 4) for k in range(len(names))] for n in (*TRAIN, *TEST)}
    files.table("train.csv", ",".join(["id", "species", *names]), [(n, label, *own[n]) for n, label in train])
    files.table("test.csv", ",".join(["id", *names]), [(n, *own[n]) for n, _ in test])
    files.table("sample_submission.csv", ",".join(["id", *species]), [(n, *[0.01] * 4) for n, _ in test])
    truth = {str(n): label for n, label in test}
    return Grading(truth, graders.distribution, graders.log_loss_of_columns, "log_loss")


def melanoma(files: Files) -> Grading:
    train, test = files.draw(["0", "1"], "jpeg/train/ISIC_{number:07d}.jpg", "jpeg/test/ISIC_{number:07d}.jpg")
    for name, drawn in (("train", train), ("test", test)):
        for n, label in drawn:
            files.picture(f"{name}/ISIC_{n:07d}.dcm", colour_of(int(label), 2), n)
        examples = [{"image": (files.folder / f"jpeg/{name}/ISIC_{n:07d}.jpg").read_bytes()} for n, _ in drawn]
        write_tfrecord(files.path(f"tfrecords/{name}00-{len(drawn)}.tfrec"), examples)
    header = "image_name,patient_id,sex,age_approx,anatom_site_general_challenge"
    beside = {n: (f"ISIC_{n:07d}", f"IP_{camera(n)}", "male", 45.0, "torso") for n in (*TRAIN, *TEST)}
    kinds = {"0": ("nevus", "benign", 0), "1": ("melanoma", "malignant", 1)}
    rows = [(*beside[n], *kinds[label]) for n, label in train]
    files.table("train.csv", f"{header},diagnosis,benign_malignant,target", rows)
    files.table("test.csv", header, [beside[n] for n in TEST])
    files.table("sample_submission.csv", "image_name,target", [(f"ISIC_{n:07d}", 0) for n in TEST])
    truth, groups = {f"ISIC_{n:07d}": int(label) for n, label in test}, {f"ISIC_{n:07d}": camera(n) for n in TRAIN}
    return Grading(truth, graders.shares, graders.auc, "roc_auc", groups=groups)


def plant_pathology_2020(files: Files) -> Grading:
    names = ["healthy", "multiple_diseases", "rust", "scab"]
    train, test = files.draw(names, "images/Train_{number}.jpg", "images/Test_{number}.jpg")
    header = ",".join(["image_id", *names])
    rows = [(f"Train_{n}", *[int(label == name) for name in names]) for n, label in train]
    files.table("train.csv", header, rows)
    files.table("test.csv", "image_id", [(f"Test_{n}",) for n in TEST])
    files.table("sample_submission.csv", header, [(f"Test_{n}", *[0.25] * 4) for n in TEST])
    truth = {f"Test_{n}": label for n, label in test}
    return Grading(truth, graders.shares, graders.mean_auc, "roc_auc")


def plant_seedlings(files: Files) -> Grading:
    species = ["Black-grass", "Common wheat", "Sugar beet"]
    _, test = files.draw(species, "train/{label}/{number:09x}.png", "test/{number:09x}.png")
    files.table("sample_submission.csv", "file,species", [(f"{n:09x}.png", "Sugar beet") for n in TEST])
    truth = {f"{n:09x}.png": label for n, label in test}
    return Grading(truth, graders.label, graders.accuracy, "micro_f1", set(species))


def seti(files: Files) -> Grading:
    train, test = files.draw(["0", "1"], "train/{number:03x}.npy", "test/{number:03x}.npy")
    for folder in ("train", "test"):
        for path in sorted((files.folder / folder).iterdir()):
            path.rename(files.path(f"{folder}/{path.name[0]}/{path.name}"))
    for n in range(5):
        files.picture(f"old_leaky_data/train_old/0/old{n}.npy", colour_of(n % 2, 2), n)
        files.picture(f"old_leaky_data/test_old/0/older{n}.npy", colour_of(n % 2, 2), n)
    files.table("old_leaky_data/train_labels_old.csv", "id,target", [(f"old{n}", n % 2) for n in range(5)])
    files.table("old_leaky_data/test_labels_old.csv", "id,target", [(f"older{n}", n % 2) for n in range(5)])
    files.table("train_labels.csv", "id,target", [(f"{n:03x}", label) for n, label in train])
    files.table("sample_submission.csv", "id,target", [(f"{n:03x}", 0.5) for n, _ in test])
    return Grading({f"{n:03x}": int(label) for n, label in test}, graders.shares, graders.auc, "roc_auc")


def state_farm(files: Files) -> Grading:
    classes = [f"c{n}" for n in range(5)]
    train, test = files.draw(classes, "imgs/train/{label}/img_{number}.jpg", "imgs/test/img_{number}.jpg")
    drivers = [(f"p{camera(n)}", label, f"img_{n}.jpg") for n, label in train]
    files.table("driver_imgs_list.csv", "subject,classname,img", drivers)
    files.table("sample_submission.csv", ",".join(["img", *classes]), [(f"img_{n}.jpg", *[0.2] * 5) for n in TEST])
    truth, groups = {f"img_{n}.jpg": label for n, label in test}, {f"img_{n}.jpg": camera(n) for n in TRAIN}
    return Grading(truth, graders.distribution, graders.log_loss_of_columns, "log_loss", groups=groups)


def statoil(files: Files) -> Grading:
    for name, numbers in (("train", TRAIN), ("test", TEST)):
        rows = []
        for n in numbers:
            bands = np.random.default_rng(n).normal([[-22 + 6 * (n % 2)], [-26 + 6 * (n % 2)]], 2, (2, 400)).round(4)
            row: dict[str, object] = {"id": f"{n:08x}", "band_1": bands[0].tolist(), "band_2": bands[1].tolist()}
            row["inc_angle"] = "na" if n % 9 == 8 else 38.5
            rows.append(row | ({"is_iceberg": n % 2} if name == "train" else {}))
        files.json(f"{name}.json", rows)
    files.table("sample_submission.csv", "id,is_iceberg", [(f"{n:08x}", 0.5) for n in TEST])
    return Grading({f"{n:08x}": n % 2 for n in TEST}, graders.shares, graders.log_loss, "log_loss")


def diabetic_retinopathy(files: Files) -> Grading:
    for number in (*TRAIN, *TEST):
        folder = "train" if number in TRAIN else "test"
        files.picture(f"{folder}/{eye(number)}.jpeg", colour_of(number % 5, 5), number)
    files.table("trainLabels.csv", "image,level", [(eye(n), n % 5) for n in TRAIN])
    files.table("sampleSubmission.csv", "image,level", [(eye(n), 0) for n in TEST])
    truth, groups = {eye(n): str(n % 5) for n in TEST}, {eye(n): str(n // 2) for n in TRAIN}
    return Grading(truth, graders.label, graders.quadratic_kappa, "quadratic_kappa", set("01234"), groups=groups)


def eye(number: int) -> str:
    return f"{number // 2}_{'right' if number % 2 else 'left'}"


def isic_2024(files: Files) -> Grading:
    import h5py

    for name, numbers in (("train", TRAIN), ("test", TEST)):
        with h5py.File(files.path(f"{name}-image.hdf5"), "w") as file:
            for n in numbers:
                picture = picture_bytes("x.jpg", colour_of(n % 2, 2), n)
                file.create_dataset(f"ISIC_{n:07d}", data=np.void(picture))
    beside = {n: (f"IP_{camera(n)}", 60.0, "male", "torso", 3.04) for n in (*TRAIN, *TEST)}
    header = "patient_id,age_approx,sex,anatom_site_general,clin_size_long_diam_mm"
    rows = [(f"ISIC_{n:07d}", n % 2, *beside[n], "nevus") for n in TRAIN]
    files.table("train-metadata.csv", f"isic_id,target,{header},iddx_1", rows)
    files.table("test-metadata.csv", f"isic_id,{header}", [(f"ISIC_{n:07d}", *beside[n]) for n in TEST])
    files.table("sample_submission.csv", "isic_id,target", [(f"ISIC_{n:07d}", 0.3) for n in TEST])
    truth, groups = {f"ISIC_{n:07d}": n % 2 for n in TEST}, {f"ISIC_{n:07d}": camera(n) for n in TRAIN}
    return Grading(truth, graders.shares, graders.partial_auc, "partial_auc_80", groups=groups)


def landmarks(files: Files) -> Grading:
    labels = ["7", "138982", "20409"]
    train, test = files.draw(labels, "train/{number:016x}.jpg", "test/{number:016x}.jpg")
    for folder in ("train", "test"):  # a folder for each of the first three characters
        for path in sorted((files.folder / folder).iterdir()):
            path.rename(files.path(f"{folder}/{'/'.join(path.name[:3])}/{path.name}"))
    files.table("train.csv", "id,landmark_id", [(f"{n:016x}", label) for n, label in train])
    files.table("sample_submission.csv", "id,landmarks", [(f"{n:016x}", "7 0.1") for n in TEST])
    truth = {f"{n:016x}": label for n, label in test}
    return Grading(truth, graders.label_and_share, graders.global_average_precision, "gap", set(labels))


# --- rankings ----------------------------------------------------------------------------------------


def hotel_id_2021(files: Files) -> Grading:
    hotels = [str(n) for n in range(36363, 36370)]
    train, test = files.draw(hotels, "train_images/{number:05x}.jpg", "test_images/{number:05x}.jpg")
    for n in TRAIN:  # a folder for each chain
        (files.folder / f"train_images/{n:05x}.jpg").rename(files.path(f"train_images/{n % 3}/{n:05x}.jpg"))
    rows = [(f"{n:05x}.jpg", n % 3, label, f"2018-05-{1 + n % 9:02d} 21:01:29") for n, label in train]
    files.table("train.csv", "image,chain,hotel_id,timestamp", rows)
    files.table("sample_submission.csv", "image,hotel_id", [(f"{n:05x}.jpg", " ".join(hotels[:5])) for n in TEST])
    truth = {f"{n:05x}.jpg": label for n, label in test}
    return Grading(truth, graders.ranking, graders.map_at_5, "map_at_5", set(hotels))


def whale_categorization(files: Files) -> Grading:
    whales = ["w_1287fbc", "w_98baff9", "new_whale", "w_7554f44", "w_1eafe46", "w_693c9ee", "w_fd1cb9d"]
    train, test = files.draw(whales, "train/{number:08x}.jpg", "test/{number:08x}.jpg")
    files.table("train.csv", "Image,Id", [(f"{n:08x}.jpg", label) for n, label in train])
    five = "new_whale w_1287fbc w_98baff9 w_7554f44 w_1eafe46"
    files.table("sample_submission.csv", "Image,Id", [(f"{n:08x}.jpg", five) for n in TEST])
    truth = {f"{n:08x}.jpg": label for n, label in test}
    return Grading(truth, graders.ranking, graders.map_at_5, "map_at_5", set(whales))


# --- several labels ----------------------------------------------------------------------------------


def imet_2020(files: Files) -> Grading:
    names = ["147", "616", "813"]
    train, test = files.draw_tags(names, "train/{number:032x}.png", "test/{number:032x}.png")
    files.table("labels.csv", "attribute_id,attribute_name", [(name, f"tags::{name}") for name in names])
    files.table("train.csv", "id,attribute_ids", [(f"{n:032x}", " ".join(sorted(own))) for n, own in train])
    files.table("sample_submission.csv", "id,attribute_ids", [(f"{n:032x}", "0 1 2") for n in TEST])
    return Grading({f"{n:032x}": own for n, own in test}, graders.tags, graders.micro_f1, "micro_f1", set(names))


def plant_pathology_2021(files: Files) -> Grading:
    names = ["scab", "rust", "frog_eye_leaf_spot"]
    train, test = files.draw_tags(names, "train_images/{number:016x}.jpg", "test_images/{number:016x}.jpg")
    files.table("train.csv", "image,labels", [(f"{n:016x}.jpg", " ".join(sorted(own))) for n, own in train])
    files.table("sample_submission.csv", "image,labels", [(f"{n:016x}.jpg", "healthy") for n in TEST])
    truth = {f"{n:016x}.jpg": own for n, own in test}
    return Grading(truth, graders.tags, graders.micro_f1, "micro_f1", set(names))


def planet(files: Files) -> Grading:
    names = ["clear", "primary", "water"]
    train, test = files.draw_tags(names, "train-jpg/train_{number}.jpg", "test-jpg/test_{number}.jpg")
    files.table("train_v2.csv", "image_name,tags", [(f"train_{n}", " ".join(sorted(own))) for n, own in train])
    files.table("sample_submission_v2.csv", "image_name,tags", [(f"test_{n}", "road") for n in TEST])
    return Grading({f"test_{n}": own for n, own in test}, graders.tags, graders.mean_f2, "samples_f2", set(names))


def ranzcr(files: Files) -> Grading:
    names = ["ETT - Abnormal", "NGT - Normal", "Swan Ganz Catheter Present"]
    train, test = files.draw_tags(names, "train/1.2.826.{number}.jpg", "test/1.2.826.{number}.jpg")
    header = ",".join(["StudyInstanceUID", *names])
    rows = [(f"1.2.826.{n}", *[int(name in own) for name in names], f"p{camera(n)}") for n, own in train]
    files.table("train.csv", f"{header},PatientID", rows)
    annotations = [(f"1.2.826.{n}", names[0], "[[1, 2], [3, 4]]") for n in range(9)]
    files.table("train_annotations.csv", "StudyInstanceUID,label,data", annotations)
    for name, numbers in (("train", TRAIN), ("test", TEST)):
        examples = [{"image": (files.folder / f"{name}/1.2.826.{n}.jpg").read_bytes()} for n in numbers]
        write_tfrecord(files.path(f"{name}_tfrecords/00-{len(numbers)}.tfrec"), examples)
    files.table("sample_submission.csv", header, [(f"1.2.826.{n}", 0, 0, 0) for n in TEST])
    truth, groups = {f"1.2.826.{n}": own for n, own in test}, {f"1.2.826.{n}": camera(n) for n in TRAIN}
    return Grading(truth, graders.shares, graders.mean_auc, "roc_auc", groups=groups)


def protein_atlas(files: Files) -> Grading:
    names = ["0", "16", "25"]
    for number in (*TRAIN, *TEST):
        bits = [SEVEN[number % 7] >> bit & 1 for bit in range(3)]
        for which, channel in enumerate(("red", "green", "blue", "yellow")):
            place = f"{'train' if number in TRAIN else 'test'}/{number:08x}_{channel}.png"
            files.picture(place, [0.1 + 0.75 * bits[which % 3]] * 3, 4 * number + which)
    own = {n: {name for bit, name in enumerate(names) if SEVEN[n % 7] >> bit & 1} for n in (*TRAIN, *TEST)}
    files.table("train.csv", "Id,Target", [(f"{n:08x}", " ".join(sorted(own[n], reverse=True))) for n in TRAIN])
    files.table("sample_submission.csv", "Id,Predicted", [(f"{n:08x}", 0) for n in TEST])
    truth = {f"{n:08x}": own[n] for n in TEST}
    return Grading(truth, graders.tags, graders.macro_f1_of_tags, "macro_f1", set(names))


# --- numbers -----------------------------------------------------------------------------------------


def pawpularity(files: Files) -> Grading:
    marks = "Subject Focus,Eyes,Face,Near,Action,Accessory,Group,Collage,Human,Occlusion,Info,Blur"
    value = {n: 1 + 37 * n % 100 for n in (*TRAIN, *TEST)}
    own = {n: (f"{n:032x}", *[int(n % (k + 2) == 0) for k in range(12)]) for n in value}
    for numbers, folder in ((TRAIN, "train"), (TEST, "test")):
        for n in numbers:
            files.picture(f"{folder}/{n:032x}.jpg", [value[n] / 100] * 3, n)
    files.table("train.csv", f"Id,{marks},Pawpularity", [(*own[n], value[n]) for n in TRAIN])
    files.table("test.csv", f"Id,{marks}", [own[n] for n in TEST])
    files.table("sample_submission.csv", "Id,Pawpularity", [(f"{n:032x}", 67.2) for n in TEST])
    return Grading({f"{n:032x}": [value[n]] for n in TEST}, graders.numbers, graders.rmse, "rmse")


def galaxies(files: Files) -> Grading:
    answers = {n: [round(level, 6) for level in colour_of(37 * n % 60, 60)] for n in (*TRAIN, *TEST)}
    for n, colour in answers.items():
        files.picture(f"images_{'training' if n in TRAIN else 'test'}_rev1/{100000 + n}.jpg", colour, n)
    header = "GalaxyID,Class1.1,Class1.2,Class1.3"
    files.table("training_solutions_rev1.csv", header, [(100000 + n, *answers[n]) for n in TRAIN])
    for name, value in (("zeros", 0), ("ones", 1)):
        files.table(f"all_{name}_benchmark.csv", header, [(100000 + n, value, value, value) for n in TEST])
    return Grading({str(100000 + n): answers[n] for n in TEST}, graders.numbers, graders.rmse, "rmse")


# --- medicine: slices, views, studies ----------------------------------------------------------------


def brain_tumours(files: Files) -> Grading:
    numbers = {"train": TRAIN[:40], "test": TEST[:12]}
    for name, own in numbers.items():
        for n in own:
            for series in ("FLAIR", "T1w", "T2w"):
                for which in range(1, 4):
                    place = f"{name}/{n:05d}/{series}/Image-{which}.dcm"
                    files.picture(place, [0.3 + 0.3 * (n % 2)] * 3, 100 * n + which)
    files.table("train_labels.csv", "BraTS21ID,MGMT_value", [(f"{n:05d}", n % 2) for n in numbers["train"]])
    files.table("sample_submission.csv", "BraTS21ID,MGMT_value", [(f"{n:05d}", 0.5) for n in numbers["test"]])
    return Grading({f"{n:05d}": n % 2 for n in numbers["test"]}, graders.shares, graders.auc, "roc_auc")


PARTS = ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "patient_overall")
FRACTURES = {0: set[str](), 1: {"C2", "patient_overall"}, 2: {"C5", "C6", "patient_overall"}}


def cervical_spine(files: Files) -> Grading:
    train, test = [(n, f"1.2.826.0.{n}") for n in TRAIN[:45]], [(n, f"1.2.826.0.{n}") for n in TEST[:9]]
    for name, studies in (("train", train), ("test", test)):
        for n, study in studies:
            for which in range(1, 11):
                files.picture(f"{name}_images/{study}/{which}.dcm", [0.2 + 0.3 * (n % 3)] * 3, 100 * n + which)
    header = ",".join(["StudyInstanceUID", "patient_overall", *PARTS[:-1]])
    rows = [(study, *[int(part in FRACTURES[n % 3]) for part in (PARTS[-1], *PARTS[:-1])]) for n, study in train]
    files.table("train.csv", header, rows)
    files.table(
        "train_bounding_boxes.csv", "x,y,width,height,StudyInstanceUID,slice_number", [(1, 2, 3, 4, train[1][1], 3)]
    )
    asked = [(f"{study}_{part}", study, part) for _, study in test for part in PARTS]
    files.table("test.csv", "row_id,StudyInstanceUID,prediction_type", asked)
    files.table("sample_submission.csv", "row_id,fractured", [(row, 0.5) for row, *_ in asked])
    truth = {f"{study}_{part}": (int(part in FRACTURES[n % 3]), part) for n, study in test for part in PARTS}
    return Grading(truth, graders.shares, fracture_loss, "fracture_log_loss")


def fracture_loss(truth: list[tuple[int, str]], rows: list[list[str]], _: list[str]) -> float:
    """A positive vertebra weighs twice as much as a negative one; the whole patient seven times as much."""
    weights = np.array([(1 + mark) * (7 if part == "patient_overall" else 1) for mark, part in truth])
    given, own = graders.values(rows)[:, 0].clip(1e-15, 1 - 1e-15), np.array([mark for mark, _ in truth])
    logs = (weights * np.log(np.where(own == 1, given, 1 - given))).reshape(-1, len(PARTS))
    return float((logs.sum(1) / weights.reshape(-1, len(PARTS)).sum(1)).mean())


def breast_cancer(files: Files) -> Grading:
    train, test = list[tuple[int, int, str, str, int]](), list[tuple[int, int, str, str, int]]()
    for name, patients, rows in (("train", range(15), train), ("test", range(20, 26), test)):
        for patient in patients:
            for which, (side, view) in enumerate((s, v) for s in "LR" for v in ("CC", "MLO")):
                image, ill = 1000 * (patient + 1) + which, int(side == "L" and patient % 3 > 0)
                files.picture(f"{name}_images/{10000 + patient}/{image}.dcm", [0.3 + 0.4 * ill] * 3, image)
                rows.append((10000 + patient, image, side, view, ill))
    header = "site_id,patient_id,image_id,laterality,view,age"
    after = [(2, p, i, s, v, 61.0, ill, 0, 0, "", 0, "", 29, "False") for p, i, s, v, ill in train]
    files.table(
        "train.csv", f"{header},cancer,biopsy,invasive,BIRADS,implant,density,machine_id,difficult_negative_case", after
    )
    before = [(2, p, i, s, v, 81, 0, 21, f"{p}_{s}") for p, i, s, v, _ in test]
    files.table("test.csv", f"{header},implant,machine_id,prediction_id", before)
    truth = {f"{p}_{s}": ill for p, _, s, _, ill in test}
    files.table("sample_submission.csv", "prediction_id,cancer", [(row, 0.021168) for row in truth])
    groups = {str(image): str(patient) for patient, image, *_ in train}
    return Grading(truth, graders.shares, graders.probabilistic_f1, "probabilistic_f1", groups=groups)


MINIATURES: dict[str, Callable[[Files], Grading]] = {
    "aerial-cactus-identification": aerial_cactus,
    "alaska2-image-steganalysis": alaska2,
    "aptos2019-blindness-detection": aptos,
    "cassava-leaf-disease-classification": cassava,
    "cdiscount-image-classification-challenge": cdiscount,
    "diabetic-retinopathy-detection": diabetic_retinopathy,
    "dog-breed-identification": dog_breed,
    "dogs-vs-cats-redux-kernels-edition": dogs_vs_cats,
    "galaxy-zoo-the-galaxy-challenge": galaxies,
    "herbarium-2020-fgvc7": herbarium_2020,
    "herbarium-2021-fgvc8": herbarium_2021,
    "herbarium-2022-fgvc9": herbarium_2022,
    "histopathologic-cancer-detection": histopathologic,
    "hotel-id-2021-fgvc8": hotel_id_2021,
    "human-protein-atlas-image-classification": protein_atlas,
    "humpback-whale-identification": whale_categorization,
    "imet-2020-fgvc7": imet_2020,
    "inaturalist-2019-fgvc6": inaturalist_2019,
    "invasive-species-monitoring": invasive_species,
    "isic-2024-challenge": isic_2024,
    "iwildcam-2019-fgvc6": iwildcam_2019,
    "iwildcam-2020-fgvc7": iwildcam_2020,
    "landmark-recognition-2020": landmarks,
    "leaf-classification": leaf,
    "petfinder-pawpularity-score": pawpularity,
    "planet-understanding-the-amazon-from-space": planet,
    "plant-pathology-2020-fgvc7": plant_pathology_2020,
    "plant-pathology-2021-fgvc8": plant_pathology_2021,
    "plant-seedlings-classification": plant_seedlings,
    "ranzcr-clip-catheter-line-classification": ranzcr,
    "rsna-2022-cervical-spine-fracture-detection": cervical_spine,
    "rsna-breast-cancer-detection": breast_cancer,
    "rsna-miccai-brain-tumor-radiogenomic-classification": brain_tumours,
    "seti-breakthrough-listen": seti,
    "siim-isic-melanoma-classification": melanoma,
    "state-farm-distracted-driver-detection": state_farm,
    "statoil-iceberg-classifier-challenge": statoil,
    "whale-categorization-playground": whale_categorization,
}
