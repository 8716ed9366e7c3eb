"""What a command takes before it is paid: memory by place, disk, tokens and hours."""
