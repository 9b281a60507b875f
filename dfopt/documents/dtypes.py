"""Data types: what they are called, how many bytes an element has, and which data of a graph is of which type.

Sources of the sizes. fp32, fp16: IEEE 754-2019. tf32: NVIDIA A100 whitepaper, 19 bits that are held in 32. bf16: Intel,
"bfloat16 hardware numerics definition". fp8 (E4M3 or E5M2): OCP 8-bit floating point specification v1.0. fp6 and fp4
elements, and blocks of 32 with a scale of one byte (``mx``): OCP microscaling formats (MX) specification v1.0, table 1.
Blocks of 128 x 128 weights and of 1 x 128 activations: DeepSeek-V3 technical report (arXiv:2412.19437), section 3.3.2;
their scales are fp32 there, and powers of two in one byte (``ue8m0``) in DeepSeek-V3.1. nvfp4, blocks of 16 with a
scale of one byte: NVIDIA, "Introducing NVFP4"; its one fp32 scale of a whole tensor is not counted. Groups of int4
with a scale of two bytes, and if wanted (``zp``) a zero point of four bits: GPTQ (arXiv:2210.17323), AWQ
(arXiv:2306.00978).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import FlopRate

if TYPE_CHECKING:
    from dfopt.documents.kernel import Kernel

DataClass = Literal["weights", "experts", "ends", "activations", "kv", "logits"]
Arithmetic = Literal["int4", "fp4", "fp6", "int8", "fp8", "bf16", "fp16", "tf32", "fp32"]
Dtype = Literal[
    "fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4", "fp8_128x128", "fp8_128x128_ue8m0",
    "fp8_1x128", "fp8_1x128_ue8m0", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int4_g32", "int4_g64", "int4_g128",
    "int4_g32_zp", "int4_g64_zp", "int4_g128_zp",
]  # fmt: skip


class Format(NamedTuple):
    """Storage format of an element: bytes including scales, and the arithmetic type that takes it directly.

    ``block``: rows and depth of a product's weights that share a scale.
    """

    bytes: Fraction
    arithmetic: Arithmetic
    block: tuple[int, int] = (1, 1)


def _blocks(of: Arithmetic, bits: int, depth: int, scale_bits: int, rows: int = 1) -> Format:
    """Elements of some bits, and so many bits beside for every block of them."""
    return Format(Fraction(bits, 8) + Fraction(scale_bits, 8 * rows * depth), of, (rows, depth))


FORMATS: Final[dict[Dtype, Format]] = {
    "fp32": Format(Fraction(4), "fp32"),
    "tf32": Format(Fraction(4), "tf32"),
    "bf16": Format(Fraction(2), "bf16"),
    "fp16": Format(Fraction(2), "fp16"),
    "fp8": Format(Fraction(1), "fp8"),
    "fp6": Format(Fraction(3, 4), "fp6"),
    "fp4": Format(Fraction(1, 2), "fp4"),
    "int8": Format(Fraction(1), "int8"),
    "int4": Format(Fraction(1, 2), "int4"),
    "fp8_128x128": _blocks("fp8", 8, 128, 32, rows=128),
    "fp8_128x128_ue8m0": _blocks("fp8", 8, 128, 8, rows=128),
    "fp8_1x128": _blocks("fp8", 8, 128, 32),
    "fp8_1x128_ue8m0": _blocks("fp8", 8, 128, 8),
    "mxfp8": _blocks("fp8", 8, 32, 8),
    "mxfp6": _blocks("fp6", 6, 32, 8),
    "mxfp4": _blocks("fp4", 4, 32, 8),
    "nvfp4": _blocks("fp4", 4, 16, 8),
    "int4_g32": _blocks("int4", 4, 32, 16),
    "int4_g64": _blocks("int4", 4, 64, 16),
    "int4_g128": _blocks("int4", 4, 128, 16),
    "int4_g32_zp": _blocks("int4", 4, 32, 16 + 4),
    "int4_g64_zp": _blocks("int4", 4, 64, 16 + 4),
    "int4_g128_zp": _blocks("int4", 4, 128, 16 + 4),
}
"""What a type is; all sizes are whole numbers of bits over powers of two, so that a float holds them exactly."""


def weights_of(kernel: Kernel) -> DataClass:
    """Data class of a kernel's weights: experts, ends (logits), or weights."""
    return "experts" if kernel.experts is not None else "ends" if kernel.output_class == "logits" else "weights"


class Words(NamedTuple):
    """Bytes of an element by data class; gradients have the type of activations.

    Attributes
    ----------
    weights, experts, ends : float, B
        Weights, weights of experts, and weights of embedding and logits.
    activations, kv, logits : float, B
        Activations, keys and values, and logits.
    state : float, B, optional
        Recurrent states; None: as the layer states that keeps it.
    """

    weights: float
    experts: float
    ends: float
    activations: float
    kv: float
    logits: float
    state: float | None = None

    def of_weight(self, kernel: Kernel) -> float:
        """Bytes of an element of a kernel's weight."""
        return float(getattr(self, weights_of(kernel)))

    def of_output(self, kernel: Kernel) -> float:
        """Bytes of an element of a kernel's output."""
        return self.logits if kernel.output_class == "logits" else self.activations


class Dtypes(Part):
    """Data types of a graph by data class.

    Attributes
    ----------
    weights : e.g. bf16
        Data type of the weights of matrix products, routers included.
    experts : e.g. mxfp4
        Data type of the weights of routed experts. None: the type of ``weights``.
    ends : e.g. bf16
        Data type of embedding tables, resident matrices and the weights that produce logits. None: the type of
        ``weights``.
    activations : e.g. bf16
        Data type of the tensors between kernels, and of gradients unless another field gives their type.
    operands : e.g. fp8
        Data type in which matrix products with weights, and products for weight gradients, take their activations. A
        conversion precedes each product. None: the stored type.
    weight_operands : e.g. fp8
        Data type in which matrix products take the weights of layers and experts. The stored weights keep their type,
        as under Transformer Engine in 8 bits. None: the stored type.
    saved : e.g. fp8
        Data type of the activations that training stores for weight gradients. It changes memory only. Activations with
        other readers are stored in their own type as well. None: the type of ``activations``.
    kv : e.g. fp8
        Data type of cached keys, values and latents. None: the type of ``activations``.
    logits : e.g. fp32
        Data type of the logits. None: the type of ``activations``.
    state : e.g. fp32
        Data type of recurrent states of sequences. None: the size that the layers give.
    products : e.g. tf32
        Arithmetic of matrix products whose operands are both fp32. ``tf32``: TF32 where the chip has a rate for it, as
        torch.backends.cuda.matmul.allow_tf32 does. None: the type of the operands.

    Examples
    --------
    >>> types = Dtypes(weights="mxfp4", kv="fp8")
    >>> types.of("experts"), types.of("logits"), types.words().weights
    ('mxfp4', 'bf16', 0.53125)
    """

    weights: Dtype = "bf16"
    experts: Dtype | None = None
    ends: Dtype | None = None
    activations: Dtype = "bf16"
    operands: Dtype | None = None
    weight_operands: Dtype | None = None
    saved: Dtype | None = None
    kv: Dtype | None = None
    logits: Dtype | None = None
    state: Dtype | None = None
    products: Literal["tf32"] | None = None

    def of(self, data: DataClass) -> Dtype:
        """Data type of one class."""
        dtype: Dtype | None = getattr(self, data)
        return dtype or (self.weights if data in ("experts", "ends") else self.activations)

    def taken(self, data: DataClass) -> Dtype:
        """Data type in which products consume weights of a class."""
        return (self.weight_operands if data in ("weights", "experts") else None) or self.of(data)

    @model_validator(mode="after")
    def _products_have_wide_operands(self) -> Self:
        named = (self.weights, self.experts, self.ends, self.activations, self.operands, self.weight_operands)
        if self.products is not None and "fp32" not in named:
            message = f"found {self.products}, but nothing that a product takes is in fp32"
            raise problem(message, "write weights: fp32 and activations: fp32, or leave products out", "$.products")
        return self

    def words(self) -> Words:
        """Bytes of an element of every data class."""
        state = None if self.state is None else float(FORMATS[self.state].bytes)
        return Words(**{data: float(FORMATS[self.of(data)].bytes) for data in get_args(DataClass)}, state=state)


class Trained(Part):
    """Data types of a training step in addition to those of its graph.

    Attributes
    ----------
    reduced : e.g. fp32
        Data type in which data-parallel replicas add up their gradients. None: the type of activations.
    main_weights : e.g. fp32
        Data type of the weights that the optimizer updates. They are a second copy unless the type equals that of
        ``weights``. None: fp32 if ``moments`` is given, otherwise as the assumption ``optimizer_bytes_per_parameter``
        says.
    moments : e.g. bf16
        Data type of each of the two moments of Adam. None: fp32 if ``main_weights`` is given, otherwise as the
        assumption ``optimizer_bytes_per_parameter`` says.

    Examples
    --------
    Adam in bf16 has weights of which nobody has a copy, and two moments:

    >>> Trained(main_weights="bf16", moments="bf16").optimizer_bytes("bf16", 12.0)
    4.0
    >>> Trained(moments="bf16").optimizer_bytes("bf16", 12.0), Trained().optimizer_bytes("bf16", 12.0)
    (8.0, 12.0)
    """

    reduced: Dtype | None = None
    main_weights: Dtype | None = None
    moments: Dtype | None = None

    def updates(self, weights: Dtype) -> bool:
        """Whether the optimizer updates weights of this type in place, without a master copy."""
        return (self.main_weights or "fp32") == weights

    def optimizer_bytes(self, weights: Dtype, stated: float) -> float:
        """Bytes of optimizer state per parameter; ``stated`` is used where no type gives them."""
        if self.main_weights is None and self.moments is None:
            return stated
        copy = 0 if self.updates(weights) else FORMATS[self.main_weights or "fp32"].bytes
        return float(copy + 2 * FORMATS[self.moments or "fp32"].bytes)


@cache
def words_of(dtypes: Dtypes | None, word_bytes: int) -> Words:
    """Bytes of an element of every data class: by types, or ``word_bytes`` for all.

    Examples
    --------
    >>> words_of(None, 2).kv, words_of(Dtypes(kv="fp8"), 2).kv
    (2.0, 1.0)
    """
    return Words(*[float(word_bytes)] * len(get_args(DataClass))) if dtypes is None else dtypes.words()


def check_word_bytes(dtypes: Dtypes | None, word_bytes: int) -> None:
    """Raise an error if ``word_bytes`` is not 2 although data types state the bytes of elements."""
    if dtypes is not None and word_bytes != 2:
        message = f"found {word_bytes}, but dtypes say how many bytes an element has"
        raise problem(message, "leave it out, or leave dtypes out", "$.word_bytes")


class Peaks(Part):
    """Dense peak rates of a chip by arithmetic type, without types that it lacks.

    Attributes
    ----------
    fp32 : e.g. 19.5 TFLOP/s
        Dense peak rate of the chip in fp32. None: the chip has no such arithmetic.
    tf32 : e.g. 156 TFLOP/s
        Dense peak rate of the chip in TF32. None: the chip has no such arithmetic.
    bf16 : e.g. 312 TFLOP/s
        Dense peak rate of the chip in bf16. Graphs without data types use it. None: the chip has no such arithmetic.
    fp16 : e.g. 312 TFLOP/s
        Dense peak rate of the chip in fp16. None: the chip has no such arithmetic.
    fp8 : e.g. 1979 TFLOP/s
        Dense peak rate of the chip in fp8 (E4M3 or E5M2), with or without block scales. None: the chip has no such
        arithmetic.
    fp6 : e.g. 4500 TFLOP/s
        Dense peak rate of the chip in fp6. None: the chip has no such arithmetic.
    fp4 : e.g. 9 PFLOP/s
        Dense peak rate of the chip in fp4, with or without block scales. None: the chip has no such arithmetic.
    int8 : e.g. 624 TFLOP/s
        Dense peak rate of the chip in 8-bit integers. None: the chip has no such arithmetic.
    int4 : e.g. 1248 TFLOP/s
        Dense peak rate of the chip in 4-bit integers. None: the chip has no such arithmetic.

    Examples
    --------
    >>> Peaks(bf16=989.5e12, fp8=1979e12).usual
    989500000000000.0
    """

    fp32: FlopRate | None = Field(default=None, gt=0)
    tf32: FlopRate | None = Field(default=None, gt=0)
    bf16: FlopRate | None = Field(default=None, gt=0)
    fp16: FlopRate | None = Field(default=None, gt=0)
    fp8: FlopRate | None = Field(default=None, gt=0)
    fp6: FlopRate | None = Field(default=None, gt=0)
    fp4: FlopRate | None = Field(default=None, gt=0)
    int8: FlopRate | None = Field(default=None, gt=0)
    int4: FlopRate | None = Field(default=None, gt=0)

    @property
    def usual(self) -> float:
        """Peak rate, FLOP/s, for graphs without data types: that of 16 bits, or of the next wider type."""
        return next(rate for rate in (self.bf16, self.fp16, self.tf32, self.fp32) if rate is not None)

    def of(self, arithmetic: Arithmetic) -> float | None:
        """Peak rate of one arithmetic type, FLOP/s, or None."""
        rate: float | None = getattr(self, arithmetic)
        return rate

    def times(self, factor: float) -> Self:
        """The rates multiplied by a factor."""
        return self.model_copy(update={name: rate * factor for name, rate in self if rate is not None})

    @model_validator(mode="after")
    def _has_a_usual_rate(self) -> Self:
        if all(rate is None for rate in (self.bf16, self.fp16, self.tf32, self.fp32)):
            rates = ", ".join(name for name, rate in self if rate is not None) or "no rate"
            message = f"found {rates}, expected one of bf16, fp16, tf32 or fp32 too"
            raise problem(message, "graphs that state no types compute in it, and so do elementwise kernels")
        return self
