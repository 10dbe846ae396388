package io.penstock.client;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TException;
import org.apache.thrift.TServiceClient;
import org.apache.thrift.protocol.TProtocol;

/**
 * Connections to several proxies. A proxy that fails is set aside for a growing pause; the others are used in turn.
 * Thread-safe; a connection is used by one thread at a time, and the lock is never held over I/O.
 */
final class Pool<C extends TServiceClient> {
  // Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
  // preceded by a small one.
  private static final long UNTRUSTED_CALL_BYTES_MAX = 48 * 1024;

  /** A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back. */
  static final double ANSWER_MARGIN_MS = 500;

  /** One proxy; guarded by the pool. */
  final class Endpoint {
    final String host;
    final int port;
    final ArrayDeque<Connection<C>> idle = new ArrayDeque<>();
    boolean isForeign; // its last answer was none of this contract
    int failures;
    double asideUntilMs = Double.NEGATIVE_INFINITY; // the clock may have any sign

    Endpoint(String text) {
      int colon = text.lastIndexOf(':');
      if (colon < 1 || !text.substring(colon + 1).matches("\\d{1,5}")) {
        throw new IllegalArgumentException("endpoint \"" + text + "\": invalid: use HOST:PORT");
      }
      host = text.substring(0, colon).replaceAll("^\\[|]$", "");
      port = Integer.parseInt(text.substring(colon + 1));
    }

    @Override
    public String toString() {
      return host + ":" + port;
    }
  }

  /** An answer and the proxy that gave it. */
  record Answered<A, E>(A answer, E endpoint) {}

  private final List<Endpoint> endpoints = new ArrayList<>();
  private final Function<TProtocol, C> service;
  private final PenstockOptions options;
  private int turn;
  private boolean isClosed;

  /** Endpoints as "host:port,host:port"; IPv6 as "[::1]:9700". */
  Pool(String list, Function<TProtocol, C> service, PenstockOptions options) {
    for (String each : list.split(",")) {
      if (!each.isBlank()) {
        endpoints.add(new Endpoint(each.trim()));
      }
    }
    if (endpoints.isEmpty()) {
      throw new IllegalArgumentException("no endpoints: give at least one HOST:PORT");
    }
    this.service = service;
    this.options = options;
    turn = ThreadLocalRandom.current().nextInt(endpoints.size());
  }

  /** The time when the first proxy may be tried again; in the past when one may be tried now. */
  synchronized double usableAtMs() {
    return endpoints.stream().mapToDouble(each -> each.asideUntilMs).min().orElseThrow();
  }

  /**
   * One attempt at the next usable proxy.
   *
   * @param hello an empty request, sent ahead when {@code sizeBytes} are too much for a new connection
   * @param timeoutMs for an answer
   * @param deadlineMs the time by which a connection is made, and ANSWER_MARGIN_MS later the answer is here
   * @param stay the proxy to use unless it is set aside; null: any
   * @throws CallFailed no answer of the contract; the proxy has been set aside
   * @throws ContractException that, and all endpoints have answered so last
   */
  <A> Answered<A, Endpoint> call(String method, Connection.Call<C, A> call, Connection.Call<C, ?> hello,
      long sizeBytes, double timeoutMs, double deadlineMs, Endpoint stay) throws CallFailed {
    Endpoint endpoint = choose(stay);
    double beganMs = PenstockOptions.nowMs();
    Connection<C> connection = idle(endpoint);
    boolean sent = false;
    Exception failure = null;
    try {
      if (connection == null) {
        connection = new Connection<>(endpoint.host, endpoint.port, service, options, deadlineMs);
      }
      if (sizeBytes > UNTRUSTED_CALL_BYTES_MAX && !connection.isTrusted) {
        connection.call(hello, timeoutMs, deadlineMs);
      }
      sent = true;
      A answer = connection.call(call, timeoutMs, deadlineMs);
      giveBack(endpoint, connection);
      return new Answered<>(answer, endpoint);
    } catch (IOException | TException | RuntimeException error) { // sockets, TLS and Thrift each throw their own
      failure = error;
      if (connection != null) {
        connection.close();
      }
      setAside(endpoint);
      if (error instanceof TApplicationException refusal) {
        // These two answer a call of another service, and one that is refused unread.
        sent = sent && refusal.getType() != TApplicationException.UNKNOWN_METHOD
            && refusal.getType() != TApplicationException.PROTOCOL_ERROR;
        if (refusal.getType() != TApplicationException.INTERNAL_ERROR && allForeign(endpoint)) {
          throw new ContractException(endpoint + " refuses `" + method + "`: " + error.getMessage(), sent);
        }
      }
      throw new CallFailed(endpoint + ": " + error, error, sent);
    } finally {
      options.metrics.call(method, endpoint.toString(), PenstockOptions.nowMs() - beganMs, failure);
    }
  }

  /** Prefer other proxies for a pause that grows with each failure in a row. */
  void setAside(Endpoint endpoint) {
    List<Connection<C>> stale;
    synchronized (this) {
      endpoint.isForeign = false;
      endpoint.failures++;
      endpoint.asideUntilMs = PenstockOptions.nowMs() + options.backoffMs(endpoint.failures);
      stale = List.copyOf(endpoint.idle);
      endpoint.idle.clear();
    }
    stale.forEach(Connection::close);
  }

  /** Notes what a proxy is that was set aside. Where all are, none waits: the next call ends as soon. */
  private synchronized boolean allForeign(Endpoint endpoint) {
    endpoint.isForeign = true;
    if (!endpoints.stream().allMatch(each -> each.isForeign)) {
      return false;
    }
    for (Endpoint each : endpoints) {
      each.isForeign = false;
      praise(each);
    }
    return true;
  }

  /** Reset the failures of a proxy that answered. */
  synchronized void praise(Endpoint endpoint) {
    endpoint.failures = 0;
    endpoint.asideUntilMs = Double.NEGATIVE_INFINITY;
  }

  synchronized void close() {
    isClosed = true;
    for (Endpoint endpoint : endpoints) {
      endpoint.idle.forEach(Connection::close);
      endpoint.idle.clear();
    }
  }

  private synchronized Endpoint choose(Endpoint stay) {
    if (isClosed) {
      throw new IllegalStateException("the client is closed");
    }
    double nowMs = PenstockOptions.nowMs();
    if (stay != null && stay.asideUntilMs <= nowMs) {
      return stay;
    }
    turn++;
    Endpoint best = null;
    for (int step = 0; step < endpoints.size(); step++) {
      Endpoint each = endpoints.get(Math.floorMod(turn + step, endpoints.size()));
      if (best == null || Math.max(each.asideUntilMs, nowMs) < Math.max(best.asideUntilMs, nowMs)) {
        best = each;
      }
    }
    return best;
  }

  private synchronized Connection<C> idle(Endpoint endpoint) {
    while (!endpoint.idle.isEmpty()) {
      Connection<C> newest = endpoint.idle.pop();
      if (PenstockOptions.nowMs() - newest.usedAtMs <= options.idleMsMax) {
        return newest;
      }
      newest.close();
    }
    return null;
  }

  private synchronized void giveBack(Endpoint endpoint, Connection<C> connection) {
    endpoint.isForeign = false;
    if (isClosed || endpoint.idle.size() >= options.idleConnectionsMax) {
      connection.close();
    } else {
      endpoint.idle.push(connection);
    }
  }
}
