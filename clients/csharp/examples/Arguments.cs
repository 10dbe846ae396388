using System;
using System.Collections.Generic;
using System.IO;
using System.Text;
using Penstock.Client;

namespace Penstock.Examples
{
    /// <summary>The command line that all programs share. The secret comes from the environment, where no process
    /// list shows it.</summary>
    internal sealed class Arguments
    {
        internal static readonly TextWriter Out =
            new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false)) { NewLine = "\n" };

        private readonly Dictionary<string, string> values = new Dictionary<string, string>();

        /// <param name="own">the names of the program's own options beside the common ones</param>
        internal Arguments(string[] line, params string[] own)
        {
            var known = new HashSet<string>(own) { "endpoints", "app", "key-id", "topic", "tls-ca", "deadline-ms" };
            for (int i = 0; i < line.Length; i++)
            {
                if (!line[i].StartsWith("--", StringComparison.Ordinal))
                {
                    Rest.Add(line[i]);
                }
                else if (line[i] == "--buffered")
                {
                    values["buffered"] = "";
                }
                else if (known.Contains(line[i].Substring(2)) && i + 1 < line.Length)
                {
                    values[line[i].Substring(2)] = line[++i];
                }
                else
                {
                    throw new ArgumentException($"{line[i]}: unknown, or without its value");
                }
            }
        }

        internal List<string> Rest { get; } = new List<string>();

        internal string? TextOrNull(string name) => values.TryGetValue(name, out string? value) ? value : null;

        internal string Text(string name) => TextOrNull(name) ?? throw new ArgumentException($"--{name} is missing");

        internal int Number(string name, int standard)
        {
            string? text = TextOrNull(name);
            if (text == null)
            {
                return standard;
            }
            return int.TryParse(text, out int value)
                ? value
                : throw new ArgumentException($"--{name} \"{text}\": invalid: use a whole number");
        }

        internal TimeSpan Ms(string name, int standard) => TimeSpan.FromMilliseconds(Number(name, standard));

        internal PenstockOptions Options()
        {
            var options = new PenstockOptions { Deadline = Ms("deadline-ms", 30_000) };
            options.Buffered = TextOrNull("buffered") != null;
            return TextOrNull("tls-ca") is string pem ? options.UseTlsTrusting(pem) : options;
        }

        internal PenstockProducer Producer(string endpoints = "endpoints") =>
            new PenstockProducer(Text(endpoints), Text("app"), Text("key-id"), Secret(), Options());

        internal PenstockConsumer Consumer(PenstockOptions options)
        {
            TimeSpan? lease = TextOrNull("lease-ms") == null ? (TimeSpan?)null : Ms("lease-ms", 0);
            return new PenstockConsumer(Text("endpoints"), Text("app"), Text("key-id"), Secret(), Text("group"),
                Text("topic").Split(','), options, lease);
        }

        private static string Secret()
        {
            string? secret = Environment.GetEnvironmentVariable("PENSTOCK_SECRET");
            return string.IsNullOrEmpty(secret)
                ? throw new ArgumentException("set PENSTOCK_SECRET to the application's secret")
                : secret;
        }
    }
}
