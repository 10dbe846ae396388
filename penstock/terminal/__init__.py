"""Parts that commands share: their instance, options, output, errors, completion and questions."""
