using System;

namespace Penstock.Client
{
    /// <summary>How <see cref="PenstockConsumer.RunAsync"/> works.</summary>
    public sealed class RunOptions
    {
        /// <summary>Handlers at a time; of one key never more than one.</summary>
        public int Workers { get; set; } = 1;

        /// <summary>Of one pull; fewer are asked for when the handlers are slow.</summary>
        public int MaxMessages { get; set; } = 32;

        /// <summary>Long poll of one pull; a stop may wait for it.</summary>
        public TimeSpan Wait { get; set; } = TimeSpan.FromSeconds(5);
    }
}
