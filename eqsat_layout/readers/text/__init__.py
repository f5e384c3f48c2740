"""What reads Relax texts and TVM's JSON, without running what they say."""
