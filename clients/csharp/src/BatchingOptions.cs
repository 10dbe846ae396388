using System;

namespace Penstock.Client
{
    /// <summary>When a <see cref="BatchingProducer"/> sends. Not to be changed once a producer is made of
    /// it.</summary>
    public sealed class BatchingOptions
    {
        /// <summary>A message waits for others at most this long.</summary>
        public TimeSpan Linger { get; set; } = TimeSpan.FromMilliseconds(5);

        /// <summary>A call is made at once when so many bytes wait.</summary>
        public long Bytes { get; set; } = 256 << 10;

        /// <summary>A call is made at once when so many messages wait.</summary>
        public int Messages { get; set; } = PenstockProducer.CallMessagesMax;

        /// <summary>A message waits for room while so many bytes wait or are on their way.</summary>
        public long BytesMax { get; set; } = 32 << 20;

        /// <summary>After this time without room a message is refused by a <see cref="FullException"/>;
        /// Timeout.InfiniteTimeSpan: never.</summary>
        public TimeSpan FullWait { get; set; } = TimeSpan.FromSeconds(10);
    }
}
