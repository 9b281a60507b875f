"""How DeepFlow's predictor of September 2021, called CrossFlow, times products of matrices and an LSTM language model.

Facts of the program (github.com/nanocad-lab/DeepFlow, 566c192, Apache-2.0), its habits included, computed for all
tilings at once. The chips come from `dfopt.technology`. It is here to compare with: dfopt's own models use none of it.
"""
