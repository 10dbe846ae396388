using System;
using System.Linq;

namespace Penstock.Examples
{
    /// <summary>Bytes in lower-case hex digits.</summary>
    internal static class Hex
    {
        internal static string Of(byte[] bytes) => BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();

        internal static byte[] Parse(string text) =>
            Enumerable.Range(0, text.Length / 2).Select(i => Convert.ToByte(text.Substring(2 * i, 2), 16)).ToArray();
    }
}
