"""Other people's measured steps, predicted with our cost model: readers of their files and what their runtimes do."""
