"""What is minimised: losses, penalties, the prior of the weight tensor, and the whole problem."""
