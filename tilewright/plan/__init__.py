"""From a graph to something that runs: kernels, memory plan, replay, inspection."""
