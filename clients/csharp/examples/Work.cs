using System;
using System.Threading;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Handles messages by <c>PenstockConsumer.RunAsync</c>, each for --handle-ms, until SIGTERM; prints one
    /// line per message.</summary>
    /// <remarks>A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of
    /// counts.</remarks>
    internal static class Work
    {
        internal static async Task<int> RunAsync(string[] line)
        {
            var given = new Arguments(line, "group", "handle-ms", "lease-ms", "outage-ms", "workers");
            TimeSpan handle = given.Ms("handle-ms", 0);
            CancellationToken stop = Programs.OnSignal();
            int handled = 0;
            int running = 0;
            int busiest = 0; // the most handlers at a time
            PenstockOptions options = given.Options();
            options.OutageMax = given.Ms("outage-ms", 600_000);
            options.Tell = Console.Error.WriteLine;
            PenstockConsumer consumer = given.Consumer(options);
            await using (consumer)
            {
                // A stop waits for the pull in progress.
                var how = new RunOptions { Workers = given.Number("workers", 1), Wait = TimeSpan.FromSeconds(1) };
                await consumer.RunAsync(async delivery =>
                {
                    lock (Arguments.Out)
                    {
                        busiest = Math.Max(busiest, ++running);
                    }
                    await Task.Delay(handle);
                    lock (Arguments.Out)
                    {
                        running--;
                        handled++;
                        Arguments.Out.WriteLine(
                            $"{delivery.Message.Topic}\t{delivery.Queue}\t{delivery.Offset}\t{delivery.Attempt}");
                        Arguments.Out.Flush();
                    }
                    return Verdict.DONE;
                }, how, stop);
            }
            Arguments.Out.WriteLine(
                $"{{\"handled\": {handled}, \"refused\": {consumer.AcksRefused}, \"busiest\": {busiest}}}");
            return 0;
        }
    }
}
