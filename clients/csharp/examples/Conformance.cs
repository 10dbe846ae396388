using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>Does what the conformance suite asks for: one JSON object per line on stdin and on stdout;
    /// clients/conformance/.</summary>
    internal sealed class Conformance
    {
        private Told told = new Told();
        private PenstockProducer producer = null!;
        private PenstockConsumer consumer = null!;
        private string topic = "";
        private IReadOnlyList<Delivery> pulled = Array.Empty<Delivery>();

        internal static async Task<int> RunAsync(string[] line)
        {
            var driver = new Conformance();
            using var lines = new StreamReader(Console.OpenStandardInput());
            while (await lines.ReadLineAsync() is string text)
            {
                object answer;
                try
                {
                    using JsonDocument asked = JsonDocument.Parse(text);
                    answer = await driver.StepAsync(asked.RootElement);
                }
                catch (PenstockException error)
                {
                    answer = new { code = error.Code };
                }
                Arguments.Out.WriteLine(JsonSerializer.Serialize(answer));
                Arguments.Out.Flush();
            }
            return 0;
        }

        private async Task<object> StepAsync(JsonElement asked)
        {
            switch (Text(asked, "do"))
            {
                case "open":
                    Open(asked);
                    break;
                case "send":
                    return new { results = await SendAsync(asked) };
                case "batch":
                    return new { results = await BatchAsync(asked) };
                case "pull":
                    pulled = await consumer.PullAsync(Number(asked, "max"), Ms(asked, "wait_ms"));
                    return new { deliveries = pulled.Select(Shown).ToList() };
                case "settle":
                    Settle(asked);
                    break;
                case "reply":
                    await producer.ReplyAsync(pulled[Number(asked, "index")], Hex.Parse(Text(asked, "body")));
                    break;
                case "run":
                    return await RunAsync(asked);
                case "flush":
                    await consumer.FlushAsync();
                    return new { refused = consumer.AcksRefused, told = told.Counts };
                default:
                    await producer.DisposeAsync();
                    await consumer.DisposeAsync();
                    break;
            }
            return new { };
        }

        private void Open(JsonElement asked)
        {
            told = new Told();
            var options = new PenstockOptions
            {
                Metrics = told,
                Deadline = Ms(asked, "deadline_ms"),
                CallTimeout = Ms(asked, "call_timeout_ms"),
                Buffered = asked.GetProperty("buffered").GetBoolean(),
            };
            if (Text(asked, "tls_ca") != "")
            {
                options.UseTlsTrusting(Text(asked, "tls_ca"));
            }
            string app = Text(asked, "app");
            string keyId = Text(asked, "key_id");
            string secret = Text(asked, "secret");
            TimeSpan? lease = Number(asked, "lease_ms") > 0 ? Ms(asked, "lease_ms") : (TimeSpan?)null;
            topic = Text(asked, "topic");
            producer = new PenstockProducer(Text(asked, "producer"), app, keyId, secret, options);
            consumer = new PenstockConsumer(
                Text(asked, "consumer"), app, keyId, secret, Text(asked, "group"), new[] { topic }, options, lease);
        }

        private async Task<object> SendAsync(JsonElement asked)
        {
            TimeSpan? replyWait = Number(asked, "reply_wait_ms") > 0 ? Ms(asked, "reply_wait_ms") : (TimeSpan?)null;
            IReadOnlyList<SendOutcome> outcomes = await producer.SendAllAsync(Messages(asked), null, replyWait);
            return outcomes.Select(each => new
            {
                code = each.Code,
                id = each.Id,
                queue = each.Queue,
                offset = each.Offset,
                attempts = each.Attempts,
                reply = each.Reply == null ? null : Hex.Of(each.Reply.Body),
                reason = each.Error,
            }).ToList();
        }

        private async Task<object> BatchAsync(JsonElement asked)
        {
            await using var batching = new BatchingProducer(producer, new BatchingOptions
            {
                Linger = Ms(asked, "linger_ms"),
                Bytes = Number(asked, "bytes"),
                Messages = Number(asked, "count"),
                BytesMax = Number(asked, "bytes_max"),
                FullWait = Ms(asked, "full_wait_ms"),
            });
            var taken = new List<Task<SendOutcome>>();
            foreach (Message each in Messages(asked))
            {
                try
                {
                    taken.Add(await batching.EnqueueAsync(each));
                }
                catch (FullException full)
                {
                    taken.Add(Task.FromException<SendOutcome>(full));
                }
            }
            if (asked.GetProperty("flush").GetBoolean())
            {
                await batching.FlushAsync();
            }
            if (Number(asked, "close_ms") >= 0)
            {
                await batching.CloseAsync(Ms(asked, "close_ms"));
            }
            return await Task.WhenAll(taken.Select(OutcomeAsync));
        }

        private static async Task<object> OutcomeAsync(Task<SendOutcome> taken)
        {
            try
            {
                SendOutcome stored = await taken;
                return new { code = stored.Code, id = stored.Id, attempts = stored.Attempts };
            }
            catch (PenstockException refused)
            {
                return new { code = refused.Code, id = refused.MessageId };
            }
            catch (FullException)
            {
                return new { error = "full" };
            }
            catch (ObjectDisposedException)
            {
                return new { error = "closed" };
            }
        }

        private List<Message> Messages(JsonElement asked) =>
            asked.GetProperty("messages").EnumerateArray().Select(NewMessage).ToList();

        private Message NewMessage(JsonElement given)
        {
            int times = given.TryGetProperty("times", out JsonElement found) ? found.GetInt32() : 1;
            string body = string.Concat(Enumerable.Repeat(Text(given, "body"), times));
            var message = new Message { Topic = topic, Body = Hex.Parse(body) };
            message.Key = TextOrNull(given, "key");
            message.Id = TextOrNull(given, "id");
            message.Tag = TextOrNull(given, "tag");
            if (given.TryGetProperty("properties", out JsonElement properties))
            {
                message.Properties =
                    properties.EnumerateObject().ToDictionary(each => each.Name, each => each.Value.GetString());
            }
            if (given.TryGetProperty("delay_ms", out JsonElement delay))
            {
                message.DelayMs = delay.GetInt64();
            }
            if (given.TryGetProperty("cancel", out JsonElement cancel) && cancel.GetBoolean())
            {
                message.Operation = Operation.CANCEL;
            }
            return message;
        }

        private async Task<object> RunAsync(JsonElement asked)
        {
            using var stop = new CancellationTokenSource();
            var handled = new List<string>();
            int busy = 0;
            int busiest = 0; // the most handlers at a time
            var how = new RunOptions { Workers = Number(asked, "workers") };
            await consumer.RunAsync(async delivery =>
            {
                lock (handled)
                {
                    busiest = Math.Max(busiest, ++busy);
                }
                await Task.Delay(Ms(asked, "handle_ms"));
                lock (handled)
                {
                    busy--;
                    handled.Add(Hex.Of(delivery.Message.Body));
                    if (handled.Count == Number(asked, "count"))
                    {
                        stop.Cancel();
                    }
                }
                switch (Text(asked, "verdict"))
                {
                    case "fail":
                        throw new InvalidOperationException("the handler failed");
                    case "fault":
                        throw new OperationCanceledException("the handler failed"); // not a fault, but a cancelled task
                    case "reject":
                        return Verdict.REJECT;
                    default:
                        return Verdict.DONE;
                }
            }, how, stop.Token);
            return new { handled, busiest };
        }

        private static object Shown(Delivery each) => new
        {
            body = Hex.Of(each.Message.Body ?? Array.Empty<byte>()),
            key = each.Message.Key,
            tag = each.Message.Tag,
            properties = each.Message.Properties,
            id = each.Id,
            attempt = each.Attempt,
            asked = each.ReplyToken != null,
        };

        private void Settle(JsonElement asked)
        {
            Delivery delivery = pulled[Number(asked, "index")];
            TimeSpan delay = Ms(asked, "delay_ms");
            switch (Text(asked, "verdict"))
            {
                case "done":
                    consumer.Done(delivery);
                    break;
                case "retry":
                    consumer.Retry(delivery, delay, Text(asked, "reason"));
                    break;
                case "reject":
                    consumer.Reject(delivery, Text(asked, "reason"));
                    break;
                default:
                    consumer.Extend(delivery, delay);
                    break;
            }
        }

        private static string Text(JsonElement of, string name) => of.GetProperty(name).GetString();

        private static string? TextOrNull(JsonElement of, string name) =>
            of.TryGetProperty(name, out JsonElement found) ? found.GetString() : null;

        private static int Number(JsonElement of, string name) => of.GetProperty(name).GetInt32();

        private static TimeSpan Ms(JsonElement of, string name) => TimeSpan.FromMilliseconds(Number(of, name));

        /// <summary>Counts what the hook is told.</summary>
        private sealed class Told : IPenstockMetrics
        {
            internal int[] Counts { get; } = new int[4]; // calls, failed calls, sent messages, handled messages

            public void Call(string method, string endpoint, TimeSpan took, Exception? failure)
            {
                Interlocked.Increment(ref Counts[0]);
                Interlocked.Add(ref Counts[1], failure == null ? 0 : 1);
            }

            public void Sent(SendOutcome outcome) => Interlocked.Increment(ref Counts[2]);

            public void Handled(Delivery delivery, Verdict verdict, TimeSpan took) =>
                Interlocked.Increment(ref Counts[3]);
        }
    }
}
