"""Operations of the link, one module each. They know log, delivery, timers and replies, and no socket."""
