"""What no plan can beat, how long tasks take side by side, and how near a plan came."""
