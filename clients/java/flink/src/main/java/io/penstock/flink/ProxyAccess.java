package io.penstock.flink;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockOptions;
import io.penstock.client.PenstockProducer;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Proxies, and the path of a file with the output of {@code penstock app create -o json}. The tasks read the file, so
 * the secret is in no job graph, and the file is needed on every machine of a cluster.
 *
 * @param endpoints "host:port,host:port"
 */
public record ProxyAccess(String endpoints, String credentialFile) implements Serializable {

  /** A consumer for reads by position; the application needs a grant for the group, which is not moved. */
  PenstockConsumer consumer(String group) throws IOException {
    JsonObject key = key();
    return new PenstockConsumer(endpoints, text(key, "app"), text(key, "key_id"), text(key, "secret"), group, List.of(),
        null, new PenstockOptions());
  }

  PenstockProducer producer() throws IOException {
    JsonObject key = key();
    return new PenstockProducer(
        endpoints, text(key, "app"), text(key, "key_id"), text(key, "secret"), new PenstockOptions());
  }

  private JsonObject key() throws IOException {
    return JsonParser.parseString(Files.readString(Path.of(credentialFile))).getAsJsonObject();
  }

  private static String text(JsonObject key, String name) {
    return key.get(name).getAsString();
  }
}
