"""What the generator draws: every elementwise op. A failure names the file to edit."""

from uops.spec.ir.ops import ALU, Op


def test_every_elementwise_op_is_drawn() -> None:
    from uops.fuzz.generate.producers import ELEMENTWISE

    drawn = {op for producer in ELEMENTWISE for op in producer.required_ops}
    assert drawn >= ALU - {Op.MIN}, f"fuzz/generate/producers.py: add a producer of {ALU - {Op.MIN} - drawn}"
