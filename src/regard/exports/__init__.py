"""Trained models for other programs: ``torch.export`` programs, ONNX models, and folders of Hugging Face transformers.

Nothing is imported here: `regard.tasks.trained_run.TrainedRun.export` is the entry.
"""
