"""The tiny base policy of a world, and the logs of an agent deployed in it."""
