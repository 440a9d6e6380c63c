"""Arrays that no kernel is quick on as they lie: transposed, interleaved or split."""
