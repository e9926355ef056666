"""The contents of small annotation files: COCO instances of 6x4 pixels, and references to them."""

from typing import Any

SQUARE = [1, 1, 3, 1, 3, 3, 1, 3]  # a polygon: the pixels 1 and 2 of rows and columns 1 and 2
SQUARE_COUNTS = "5220;"  # its compressed runs
SMALL = [0, 0, 2, 0, 2, 2, 0, 2]  # overlaps it in one pixel


def image(number: int = 1, **changed: Any) -> dict[str, Any]:
    return {"id": number, "file_name": f"COCO_train2014_{number:012d}.jpg", "width": 6, "height": 4} | changed


def annotation(number: int, *parts: list[float], **changed: Any) -> dict[str, Any]:
    own = {"id": number, "image_id": 1, "category_id": 1, "iscrowd": 0, "bbox": [1, 1, 2, 2]}
    return own | {"segmentation": list(parts)} | changed


def instances(*annotations: Any, images: Any = None, **changed: Any) -> dict[str, Any]:
    pictures = [image()] if images is None else images
    return {"images": pictures, "annotations": list(annotations), "categories": [{"id": 1, "name": "dog"}]} | changed


def ref(number: int, *sentences: str, split: str = "val", **changed: Any) -> dict[str, Any]:
    """A reference as in the authors' files; its sentences have the ids 10 * number, 10 * number + 1, ..."""
    texts = [
        {"sent_id": 10 * number + i, "sent": sent, "raw": sent.upper(), "tokens": sent.split()}
        for i, sent in enumerate(sentences or ("a dog",))
    ]
    own = {"ref_id": number, "ann_id": number, "image_id": 1, "category_id": 1, "split": split, "sentences": texts}
    return own | {"sent_ids": [text["sent_id"] for text in texts], "file_name": "COCO_train2014_1_0.jpg"} | changed
