using System;
using System.IO;
using System.Linq;
using System.Net.Security;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using System.Text.RegularExpressions;

namespace Penstock.Client
{
    /// <summary>Verifies a server's certificate by the authorities of a PEM file, whatever this machine
    /// trusts.</summary>
    internal sealed class TrustedAuthorities
    {
        private static readonly Regex Block =
            new Regex("-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----", RegexOptions.Compiled);

        private readonly X509Certificate2[] authorities;

        internal TrustedAuthorities(string pemFile)
        {
            try
            {
                authorities = Block.Matches(File.ReadAllText(pemFile)).Cast<Match>()
                    .Select(each => new X509Certificate2(Convert.FromBase64String(each.Groups[1].Value))).ToArray();
            }
            catch (Exception error) when (error is FormatException || error is CryptographicException)
            {
                throw new IOException(pemFile + ": " + error.Message, error);
            }
            if (authorities.Length == 0)
            {
                throw new IOException(pemFile + ": no certificate in it");
            }
        }

        /// <summary>The policy allows any root, so the chain has to have one of the authorities in it.</summary>
        internal bool Verify(object sender, X509Certificate? certificate, X509Chain? given, SslPolicyErrors errors)
        {
            if (certificate == null || (errors & ~SslPolicyErrors.RemoteCertificateChainErrors) != SslPolicyErrors.None)
            {
                return false;
            }
            using var chain = new X509Chain();
            chain.ChainPolicy.RevocationMode = X509RevocationMode.NoCheck;
            chain.ChainPolicy.VerificationFlags = X509VerificationFlags.AllowUnknownCertificateAuthority;
            chain.ChainPolicy.ApplicationPolicy.Add(new Oid("1.3.6.1.5.5.7.3.1")); // a server's, if it names its use
            chain.ChainPolicy.ExtraStore.AddRange(authorities);
            if (given != null)
            {
                chain.ChainPolicy.ExtraStore.AddRange(given.ChainPolicy.ExtraStore); // what the server has sent
            }
            return chain.Build(new X509Certificate2(certificate)) && chain.ChainElements.Cast<X509ChainElement>()
                .Any(element => authorities.Any(each => each.RawData.SequenceEqual(element.Certificate.RawData)));
        }
    }
}
