using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Tests
{
    /// <summary>What only the C# client promises: cancellation, no context of the caller, tasks that nobody awaits one by
    /// one. Run by tests/e2e/clients/test_csharp_client.py: PRODUCERS CONSUMERS APP KEY_ID SECRET.</summary>
    internal static class Promises
    {
        private static readonly TimeSpan Long = TimeSpan.FromSeconds(25);
        private static string[] given = Array.Empty<string>();

        internal static async Task<int> Main(string[] arguments)
        {
            given = arguments;
            await ACancelledPullEndsAtOnce();
            await ACancelledSendEndsAtOnce();
            await ARunThatIsStoppedBeforeItsStartEnds();
            await UnawaitedMessagesGoInOneCallInTheirOrder();
            InvalidOptionsAreRefused();
            AContextThatRunsNothingIsNotWaitedFor();
            return 0;
        }

        private static async Task ACancelledPullEndsAtOnce()
        {
            await using PenstockConsumer consumer = Consumer("nothing");
            await IsCancelled(token => consumer.PullAsync(1, Long, token));
        }

        private static async Task ACancelledSendEndsAtOnce()
        {
            var options = new PenstockOptions { Deadline = Long };
            await using var producer = new PenstockProducer("127.0.0.1:1", given[2], given[3], given[4], options);
            await IsCancelled(token => producer.SendAsync(Named("never"), token));
        }

        private static async Task ARunThatIsStoppedBeforeItsStartEnds()
        {
            await using PenstockConsumer consumer = Consumer("nothing");
            await consumer.RunAsync(delivery => Task.FromResult(Verdict.DONE), null, new CancellationToken(true));
        }

        private static async Task UnawaitedMessagesGoInOneCallInTheirOrder()
        {
            await using PenstockProducer producer = Producer();
            var how = new BatchingOptions { Linger = TimeSpan.FromMilliseconds(300) };
            await using var batching = new BatchingProducer(producer, how);
            var sending = Enumerable.Range(0, 100).Select(each => batching.SendAsync(Named($"m{each}"))).ToList();
            SendOutcome[] stored = await Task.WhenAll(sending);
            Is(stored.Select(each => each.Id).SequenceEqual(Enumerable.Range(0, 100).Select(each => $"m{each}")));
        }

        private static void InvalidOptionsAreRefused()
        {
            try
            {
                Producer(new PenstockOptions { CallTimeout = TimeSpan.Zero });
            }
            catch (ArgumentException error)
            {
                Is(error.Message.Contains("use more than 0"));
                return;
            }
            Is(false);
        }

        /// <summary>As in a program with windows whose one thread waits for the task.</summary>
        private static void AContextThatRunsNothingIsNotWaitedFor()
        {
            SynchronizationContext.SetSynchronizationContext(new Stuck());
            PenstockProducer producer = Producer();
            PenstockConsumer consumer = Consumer("t");
            var batching = new BatchingProducer(producer);
            Is(producer.SendAsync(Named("first")).Wait(Long));
            Is(batching.SendAsync(Named("second")).Wait(Long));
            Task<IReadOnlyList<Delivery>> pull = consumer.PullAsync(1, Long);
            Is(pull.Wait(Long));
            consumer.Done(pull.Result[0]);
            using var stop = new CancellationTokenSource();
            Task run = consumer.RunAsync(
                async delivery =>
                {
                    await Task.Yield();
                    stop.Cancel();
                    return Verdict.DONE;
                }, new RunOptions { Wait = TimeSpan.FromMilliseconds(50) }, stop.Token);
            Is(run.Wait(Long));
            Is(batching.DisposeAsync().AsTask().Wait(Long));
            Is(consumer.DisposeAsync().AsTask().Wait(Long));
            SynchronizationContext.SetSynchronizationContext(null);
        }

        private static async Task IsCancelled(Func<CancellationToken, Task> call)
        {
            using var cancellation = new CancellationTokenSource(100);
            Stopwatch clock = Stopwatch.StartNew();
            try
            {
                await call(cancellation.Token);
                Is(false);
            }
            catch (OperationCanceledException)
            {
                Is(clock.Elapsed < TimeSpan.FromSeconds(10));
            }
        }

        private static void Is(bool so)
        {
            if (!so)
            {
                throw new InvalidOperationException("a promise is not kept: see the trace");
            }
        }

        private static PenstockProducer Producer(PenstockOptions? options = null) =>
            new PenstockProducer(given[0], given[2], given[3], given[4], options);

        private static PenstockConsumer Consumer(string topic) =>
            new PenstockConsumer(given[1], given[2], given[3], given[4], "g", new[] { topic });

        private static Message Named(string id) =>
            new Message { Topic = "t", Id = id, Key = "k", Body = Encoding.UTF8.GetBytes(id) };

        private sealed class Stuck : SynchronizationContext
        {
            public override void Post(SendOrPostCallback callback, object? state) { }
        }
    }
}
