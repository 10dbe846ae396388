package io.penstock.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Options of a producer or consumer; each setter returns this. Not to be changed once a client has been made of it. */
public final class PenstockOptions {
  double deadlineMs = 10_000;
  double callTimeoutMs = 3_000;
  double connectTimeoutMs = 1_000;
  double backoffFirstMs = 50;
  double backoffMaxMs = 2_000;
  double credentialMs = 60_000;
  double idleMsMax = 30_000;
  double outageMsMax = 600_000;
  double extendMsMax = 3_600_000;
  int idleConnectionsMax = 8;
  boolean isFramed = true;
  SSLContext tls;
  Consumer<String> tell = text -> System.getLogger("io.penstock.client").log(System.Logger.Level.WARNING, text);
  PenstockMetrics metrics = new PenstockMetrics() {};

  /**
   * For one send with all its retries; a pull or a request adds it to its wait. A call may take 500 ms more for an
   * answer. Default 10 s.
   */
  public PenstockOptions deadline(Duration value) {
    deadlineMs = positive("deadline", value);
    return this;
  }

  /** For one attempt at one proxy; shorter finds a hung proxy sooner, and retries more. Default 3 s. */
  public PenstockOptions callTimeout(Duration value) {
    callTimeoutMs = positive("callTimeout", value);
    return this;
  }

  /** For a new connection with its TLS handshake; less when the deadline comes before. Default 1 s. */
  public PenstockOptions connectTimeout(Duration value) {
    connectTimeoutMs = positive("connectTimeout", value);
    return this;
  }

  /** The first back-off, doubled with each failure up to the maximum, with jitter. Default 50 ms and 2 s. */
  public PenstockOptions backoff(Duration first, Duration max) {
    backoffFirstMs = positive("backoff", first);
    backoffMaxMs = positive("backoff", max);
    return this;
  }

  /** Idle connections kept per proxy, and the age beyond which the proxy may have closed one. Default 8 and 30 s. */
  public PenstockOptions idle(int connectionsMax, Duration ageMax) {
    idleConnectionsMax = connectionsMax;
    idleMsMax = positive("idle", ageMax);
    return this;
  }

  /** {@code run} ends when no pull has succeeded for so long. Default 10 min; zero: never. */
  public PenstockOptions outageMax(Duration value) {
    outageMsMax = value.toMillis();
    return this;
  }

  /** {@code run} extends no lease beyond this; a handler that hangs loses its message then. Default 1 h. */
  public PenstockOptions extendMax(Duration value) {
    extendMsMax = positive("extendMax", value);
    return this;
  }

  /** Buffered transport instead of framed. Penstock takes both on one port. */
  public PenstockOptions buffered() {
    isFramed = false;
    return this;
  }

  /** TLS with the certificate and host name verified. Null: plain TCP, the default. */
  public PenstockOptions tls(SSLContext context) {
    tls = context;
    return this;
  }

  /**
   * TLS that trusts the certificate authorities in a PEM file.
   *
   * @throws IOException the file cannot be read or has no certificate
   */
  public PenstockOptions tlsTrusting(Path pem) throws IOException {
    try (InputStream file = Files.newInputStream(pem)) {
      KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        store.setCertificateEntry("authority " + store.size(), each);
      }
      if (store.size() == 0) {
        throw new IOException(pem + ": no certificate in it");
      }
      TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      tls = SSLContext.getInstance("TLS");
      tls.init(null, trust.getTrustManagers(), null);
      return this;
    } catch (GeneralSecurityException error) {
      throw new IOException(pem + ": " + error.getMessage(), error);
    }
  }

  /** Called with outages and topics that give nothing, one sentence each. Default: System.Logger, as warnings. */
  public PenstockOptions tell(Consumer<String> value) {
    tell = Objects.requireNonNull(value, "tell");
    return this;
  }

  public PenstockOptions metrics(PenstockMetrics value) {
    metrics = Objects.requireNonNull(value, "metrics");
    return this;
  }

  /** The pause after the n-th failure in a row, n from 1: a random point in the upper half of a doubling bound. */
  double backoffMs(int failures, double chance) {
    return Math.min(backoffMaxMs, backoffFirstMs * (1L << Math.min(failures - 1, 30))) * (0.5 + chance / 2);
  }

  double backoffMs(int failures) {
    return backoffMs(failures, ThreadLocalRandom.current().nextDouble());
  }

  /** Milliseconds of the clock that never goes back. */
  static double nowMs() {
    return System.nanoTime() / 1e6;
  }

  private static double positive(String name, Duration value) {
    if (value.isZero() || value.isNegative()) {
      throw new IllegalArgumentException(name + ": invalid: use more than 0");
    }
    return value.toMillis();
  }
}
