"""Convolution and its gradients: products of panels, weights and slabs."""
