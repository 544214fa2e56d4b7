"""The ways to run a problem: each exact, each with its own speed, memory and limits."""
