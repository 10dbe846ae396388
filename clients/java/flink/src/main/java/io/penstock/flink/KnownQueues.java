package io.penstock.flink;

import java.util.List;

/**
 * The enumerator's part of a checkpoint. The offsets of queues that a reader has are in the readers' parts.
 *
 * @param count queues 0 to count - 1 have been found
 * @param unassigned those of them that no reader has
 */
record KnownQueues(int count, List<QueueSplit> unassigned) {}
