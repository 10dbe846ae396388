using System;
using System.Collections.Generic;
using System.Security.Cryptography;
using System.Threading;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Pulls until --count different lines have come, or SIGTERM; prints one line per delivery and
    /// acknowledges all.</summary>
    /// <remarks>A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A
    /// message that is delivered twice is printed twice and counted once.</remarks>
    internal static class DemoConsumer
    {
        internal static async Task<int> RunAsync(string[] line)
        {
            var given = new Arguments(line, "group", "count", "max");
            CancellationToken stop = Programs.OnSignal();
            var seen = new HashSet<string>();
            using SHA256 digest = SHA256.Create();
            await using PenstockConsumer consumer = given.Consumer(given.Options());
            while (seen.Count < given.Number("count", 0) && !stop.IsCancellationRequested)
            {
                foreach (Delivery each in await consumer.PullAsync(given.Number("max", 256), TimeSpan.FromSeconds(1)))
                {
                    string number = each.Message.Properties?.GetValueOrDefault("line") ?? "";
                    byte[] hash = digest.ComputeHash(each.Message.Body ?? Array.Empty<byte>());
                    string place = $"{each.Queue}\t{each.Offset}\t{each.Attempt}";
                    Arguments.Out.WriteLine($"{number}\t{each.Message.Key}\t{place}\t{Hex.Of(hash)}");
                    seen.Add(number);
                    consumer.Done(each);
                }
                Arguments.Out.Flush();
            }
            return 0;
        }
    }
}
