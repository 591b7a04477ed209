"""What diagnose_mistakes.py diagnoses: models with a planted mistake, and healthy ones."""
