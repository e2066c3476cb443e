"""A model that takes pixels behind the whole house: the answer says that it saw them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import consilium
from tests.support.labsheet_render import photo
from tests.support.product import Product
from tests.support.tiny_vision import save_tiny_vision


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with a tiny Qwen2.5-VL: random weights, the family's real code."""
    folder = save_tiny_vision("qwen2_5_vl", tmp_path_factory.mktemp("model"))
    product = Product(tmp_path_factory.mktemp("house"), "--model", str(folder)).start()
    yield product
    product.stop()


@pytest.fixture
async def room(seeing: Product):
    name = f"pixels-{uuid.uuid4().hex[:8]}"
    async with consilium.connect(
        f"ws://127.0.0.1:{seeing.port}", room=name, name="Dr Wu"
    ) as joined:
        yield joined


async def test_the_answer_says_that_the_model_saw_pixels_and_they_change_it(room, seeing):
    ids = []
    for number in (1, 2):
        ids.append(await room.upload(photo(640, 480, seed=number), name=f"{number}.jpg"))
    answers = {}
    for asset in ids:
        turn = await room.ask("What do you see?", assets=[asset], max_tokens=16)
        answers[asset] = "".join([text async for text in turn])
        assert room.state.turns[turn.turn].sight == "pixels"
    assert len(set(answers.values())) == 2


async def test_without_pictures_nothing_was_seen(room):
    turn = await room.ask("What do you see?", max_tokens=8)
    assert [text async for text in turn]
    assert room.state.turns[turn.turn].sight == "none"


async def test_the_record_of_the_turn_holds_the_mark_and_the_metrics_count(room, seeing):
    asset = await room.upload(photo(640, 480, seed=3), name="3.jpg")
    turn = await room.ask("What do you see?", assets=[asset], max_tokens=8)
    async for _ in turn:
        pass
    record = await room.fetch_turn_record(turn.turn)
    assert "<|image_pad|>" in record["prompt"]
    assert seeing.metric("consilium_engine_pictures_encoded_total") >= 1
