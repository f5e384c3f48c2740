"""What reads programs that torch exports."""
