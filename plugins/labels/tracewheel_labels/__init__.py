"""What people say of trajectories, and how far graders agree with them."""
