"""How a fit goes: the plan, the strategies, the members, and merging them into one model."""
