"""Other people's array libraries and compilers as subjects under test, by one shared base.

`library` is what an adapter supplies, `evaluator` the base that makes a Backend of it. `walk` evaluates a graph node by node.
`views` has movement and memory, `host` index values, `probe` the programs by which a library is asked what it lacks. Each
`*_adapter` is a table of one library's functions. `model` is for compilers that take a graph as a document: `onnx_model` is the
table of the two that take ONNX models, and the folder `stablehlo` has those that take StableHLO.
"""
