"""Benchmarks that print ratios: each figure beside a floor or a baseline, measured in the same run, in turns.

They belong to the checkout and are no part of the package.
"""
