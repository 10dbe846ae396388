using System;
using System.Threading;
using System.Threading.Tasks;

namespace Penstock.Client
{
    /// <summary>Wakes all that wait for a change. Who waits takes <see cref="Next"/> before it looks at what may
    /// change, so that no change is missed.</summary>
    internal sealed class Signal
    {
        private TaskCompletionSource<bool> next = NewSource();

        internal Task Next => Volatile.Read(ref next).Task;

        internal void Raise() => Interlocked.Exchange(ref next, NewSource()).TrySetResult(true);

        /// <summary>Waits for what <see cref="Next"/> gave, for so long at most; infinity is for ever.</summary>
        internal static async Task WaitAsync(Task raised, double ms, CancellationToken cancellation = default)
        {
            using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellation);
            int whole = ms >= int.MaxValue ? Timeout.Infinite : (int)Math.Max(0, Math.Ceiling(ms));
            await Task.WhenAny(raised, Task.Delay(whole, ended.Token)).ConfigureAwait(false);
            ended.Cancel(); // the timer
            cancellation.ThrowIfCancellationRequested();
        }

        private static TaskCompletionSource<bool> NewSource() =>
            new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
    }
}
