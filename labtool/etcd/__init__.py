"""Judging etcd: histories of what clients saw, and whether one etcd can explain them."""
