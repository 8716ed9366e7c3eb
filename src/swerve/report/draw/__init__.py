"""What rows of numbers are drawn with: plots of the page as SVG, and figures for papers."""
