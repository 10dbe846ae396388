package io.penstock.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.penstock.thrift.Credential;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Mints the credential and keeps it for a while, as the proxies cache their verdict by its bytes. Thread-safe. */
final class CredentialMint {
  private final String app;
  private final String keyId;
  private final byte[] secret;
  private final double reuseMs;
  private Credential minted;

  CredentialMint(String app, String keyId, String secret, double reuseMs) {
    if (app.isEmpty() || keyId.isEmpty() || secret.isEmpty()) {
      throw new IllegalArgumentException("credential: incomplete: use the application, its key id and its secret");
    }
    this.app = app;
    this.keyId = keyId;
    this.secret = secret.getBytes(UTF_8);
    this.reuseMs = reuseMs;
  }

  synchronized Credential credential() {
    long now = System.currentTimeMillis();
    if (minted == null || now < minted.getIssuedAtMs() || now - minted.getIssuedAtMs() >= reuseMs) {
      minted = new Credential(app, keyId, now, ByteBuffer.wrap(sign("penstock/1\n" + app + "\n" + keyId + "\n" + now)));
    }
    return minted;
  }

  private byte[] sign(String text) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(secret, "HmacSHA256"));
      return mac.doFinal(text.getBytes(UTF_8));
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException("this Java has no HmacSHA256", error);
    }
  }
}
