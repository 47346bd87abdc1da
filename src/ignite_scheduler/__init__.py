"""IgNITE: plan, schedule and run pipeline-parallel training over unlike devices."""
