"""The methods of Tensor, by theme. Each builds nodes of the TENSOR dialect; none computes."""
