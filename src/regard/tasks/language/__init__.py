"""Modelling running text: predicting each token from those before it."""
