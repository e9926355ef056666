"""Small annotation files, images and answers in the real formats, written by the tests."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

SIZE = (160, 120)
WORDS = ["red mug", "blue plate", "left chair", "old dog", "green car", "small boat"]


def annotations(first_id: int, texts: list[str], images: int = 3) -> dict[str, Any]:
    """An MDETR file with one expression a text, spread over `images` images; box i is 10 i pixels from the left."""
    numbers = range(first_id, first_id + len(texts))
    return {
        "info": [],
        "licenses": [],
        "images": [
            {
                "file_name": f"COCO_train2014_{i % images:012d}.jpg",
                "height": SIZE[1],
                "width": SIZE[0],
                "id": number,
                "original_id": i % images,
                "caption": text,
                "dataset_name": "refcoco",
                "tokens_negative": [[0, len(text)]],
            }
            for i, (number, text) in enumerate(zip(numbers, texts, strict=True))
        ],
        "annotations": [
            {
                "id": number,
                "image_id": number,
                "bbox": [10 * i, 20, 60, 50],
                "area": 3000,
                "iscrowd": 0,
                "category_id": 1,
                "original_id": 1000 + i,
                "tokens_positive": [[0, len(text)]],
            }
            for i, (number, text) in enumerate(zip(numbers, texts, strict=True))
        ],
        "categories": [],
    }


def write_annotations(folder: Path, split: str, first_id: int, texts: list[str]) -> Path:
    path = folder / f"finetune_{split}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(annotations(first_id, texts)), encoding="utf-8")
    return path


def write_images(folder: Path, images: int = 3) -> None:
    (folder / "train2014").mkdir(parents=True, exist_ok=True)
    for number in range(images):
        picture = Image.new("RGB", SIZE, (40 * number, 90, 30))
        picture.save(folder / "train2014" / f"COCO_train2014_{number:012d}.jpg")


def write_fairseq(path: Path, texts: list[str]) -> Path:
    """A log whose box is always the upper left quarter of the grid."""
    lines = ["Namespace(demo)"]
    for i, text in enumerate(texts):
        lines.append(f"S-{i}\t<s><image></image><grounding><phrase>{text}</phrase>")
        answer = f"<phrase>{text}</phrase><object><patch_index_0000><patch_index_0495></object></s>"
        lines.append(f"H-{i}\t-0.1\t<image></image><grounding>{answer}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_points(folder: Path, names: list[str]) -> None:
    """A raw RefSpatial split: one image and one mask a question, the mask its left half."""
    for kind in ("image", "mask"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number in range(len(names)):
        Image.new("RGB", SIZE, (90, 90, 90)).save(folder / "image" / f"{number}.png")
        write_mask(folder / "mask" / f"{number}.png", (0, 0, SIZE[0] // 2, SIZE[1]))
    questions = [
        {
            "id": number,
            "object": name,
            "prompt": f"Point to {name}.",
            "suffix": "As tuples.",
            "rgb_path": f"image/{number}.png",
            "mask_path": f"mask/{number}.png",
            "category": "location",
            "step": 1,
        }
        for number, name in enumerate(names)
    ]
    (folder / "question.json").write_text(json.dumps(questions), encoding="utf-8")


def write_mask(path: Path, box_xyxy: tuple[int, int, int, int]) -> None:
    mask = Image.new("L", SIZE, 0)
    mask.paste(255, box_xyxy)
    mask.save(path)


def boxes_benchmark(**splits: int) -> dict[str, Any]:
    return {
        "task": "boxes",
        "source": "mdetr",
        "splits": splits,
        "annotations": "data/finetune_{split}.json",
        "images": "data/images",
    }


def baseline(strategy: str, **more: Any) -> dict[str, Any]:
    return {
        "identity": {"backend": "baselines", "strategy": strategy, **more},
        "formats": {"boxes": {"notation": "kosmos"}},
    }


def server_model(url: str, revision: str = "tiny") -> dict[str, Any]:
    return {
        "identity": {"backend": "openai", "model": revision},
        "exec": {"url": url, "retries": 0},
        "formats": {"boxes": {"notation": "brackets", "coordinates": "pixels"}},
    }
