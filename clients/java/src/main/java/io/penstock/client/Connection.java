package io.penstock.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.util.function.Function;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import org.apache.thrift.TException;
import org.apache.thrift.TServiceClient;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.layered.TFramedTransport;

/** One socket with one call at a time. After any failure it is closed: a late answer would go to the next call. */
final class Connection<C extends TServiceClient> {
  /** A method of the generated client with its request. */
  interface Call<C, A> {
    A on(C client) throws TException;
  }

  private final Socket socket;
  private final TTransport transport;
  private final C client;
  boolean isTrusted;
  double usedAtMs = PenstockOptions.nowMs();

  /** Connects, with the TLS handshake, by the deadline. */
  Connection(String host, int port, Function<TProtocol, C> service, PenstockOptions options, double deadlineMs)
      throws IOException, TException {
    double untilMs = Math.min(deadlineMs, PenstockOptions.nowMs() + options.connectTimeoutMs);
    Socket plain = new Socket();
    try {
      InetSocketAddress address = new InetSocketAddress(host, port);
      plain.connect(address, leftMs(untilMs));
      plain.setSoTimeout(leftMs(untilMs));
      socket = options.tls == null ? plain : encrypted(plain, host, port, options);
      TSocket wire = new TSocket(socket); // sets TCP_NODELAY
      transport = options.isFramed ? new TFramedTransport(wire) : wire;
      client = service.apply(new TBinaryProtocol(transport));
    } catch (IOException | TException | RuntimeException error) {
      plain.close();
      throw error;
    }
  }

  private static Socket encrypted(Socket plain, String host, int port, PenstockOptions options) throws IOException {
    SSLSocket made = (SSLSocket) options.tls.getSocketFactory().createSocket(plain, host, port, true);
    SSLParameters parameters = made.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS"); // without it any name would do
    made.setSSLParameters(parameters);
    made.startHandshake();
    return made;
  }

  /** At least 1: to a socket 0 is no limit. */
  private static int leftMs(double untilMs) {
    return (int) Math.max(1, Math.ceil(untilMs - PenstockOptions.nowMs()));
  }

  /** The timeout is for each read of the socket. */
  <A> A call(Call<C, A> call, double timeoutMs, double deadlineMs) throws IOException, TException {
    int answerMs = leftMs(deadlineMs + Pool.ANSWER_MARGIN_MS);
    socket.setSoTimeout(Math.min((int) Math.ceil(timeoutMs), answerMs));
    A answer = call.on(client);
    isTrusted = true;
    usedAtMs = PenstockOptions.nowMs();
    return answer;
  }

  void close() {
    try {
      socket.setSoTimeout(1); // else a TLS socket waits for the other end's close_notify as for an answer
    } catch (SocketException closed) {
      // then it does not wait
    }
    transport.close();
  }
}
