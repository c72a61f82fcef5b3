"""Which two submissions to choose for the end of a competition: `podium final`."""
