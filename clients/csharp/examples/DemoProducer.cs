using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Streams a file, one message per line, and reports progress as JSON lines.</summary>
    /// <remarks>Line i has key "k(i mod N)", property line=i, and the line's bytes with its newline as
    /// body.</remarks>
    internal sealed class DemoProducer
    {
        private readonly Stopwatch clock = Stopwatch.StartNew();
        private readonly List<double> callsMs = new List<double>();
        private double printedS;
        private int sent;

        internal static async Task<int> RunAsync(string[] line)
        {
            var given = new Arguments(line, "file", "keys", "batch");
            var report = new DemoProducer();
            int number = 0;
            using Stream file = new BufferedStream(File.OpenRead(given.Text("file")), 1 << 16);
            await using PenstockProducer producer = given.Producer();
            while (true)
            {
                var batch = new List<Message>();
                byte[] body;
                for (; batch.Count < given.Number("batch", 100) && (body = NextLine(file)).Length > 0; number++)
                {
                    batch.Add(new Message
                    {
                        Topic = given.Text("topic"),
                        Key = $"k{number % given.Number("keys", 16)}",
                        Body = body,
                        Properties = new Dictionary<string, string> { ["line"] = number.ToString() },
                    });
                }
                bool isSent = batch.Count > 0 && await report.SendAsync(producer, batch);
                if (!isSent)
                {
                    report.Print(producer.Retried);
                    return batch.Count == 0 ? 0 : 1;
                }
            }
        }

        private async Task<bool> SendAsync(PenstockProducer producer, List<Message> batch)
        {
            double beganMs = clock.Elapsed.TotalMilliseconds;
            IReadOnlyList<SendOutcome> outcomes = await producer.SendAllAsync(batch);
            List<SendOutcome> lost = outcomes.Where(each => !each.Ok).ToList();
            sent += outcomes.Count - lost.Count;
            callsMs.Add(clock.Elapsed.TotalMilliseconds - beganMs);
            if (lost.Count > 0)
            {
                Console.Error.WriteLine(
                    $"{lost.Count} not acknowledged; the first: code {(int)lost[0].Code}: {lost[0].Error}");
            }
            else if (clock.Elapsed.TotalSeconds - printedS >= 1)
            {
                Print(producer.Retried);
            }
            return lost.Count == 0;
        }

        private void Print(long retried)
        {
            printedS = clock.Elapsed.TotalSeconds;
            List<double> ordered = callsMs.OrderBy(each => each).DefaultIfEmpty().ToList();
            Arguments.Out.WriteLine(string.Format(CultureInfo.InvariantCulture,
                "{{\"sent\": {0}, \"retried\": {1}, \"seconds\": {2:F3}, \"p50_ms\": {3:F3}, \"p99_ms\": {4:F3}}}",
                sent, retried, printedS, ordered[ordered.Count / 2], ordered[ordered.Count * 99 / 100]));
            Arguments.Out.Flush();
        }

        /// <summary>The next line with its newline; empty at the end.</summary>
        private static byte[] NextLine(Stream file)
        {
            var line = new MemoryStream();
            for (int each; (each = file.ReadByte()) >= 0;)
            {
                line.WriteByte((byte)each);
                if (each == '\n')
                {
                    break;
                }
            }
            return line.ToArray();
        }
    }
}
