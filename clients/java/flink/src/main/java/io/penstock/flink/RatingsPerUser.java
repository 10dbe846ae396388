package io.penstock.flink;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts ratings per user: reads JSON messages with "user" and "rating" from one topic, keeps number and sum per user
 * in Flink's state, and sends both to another topic after each rating.
 *
 * <p>The id of a result is the user and the number of ratings so far. So a rating that were read twice would give a
 * message too many, and one that were lost a message too few.
 */
public final class RatingsPerUser {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> given = new HashMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      given.put(arguments[i], arguments[i + 1]);
    }
    for (String name : new String[] {"--consumer", "--producer", "--credential", "--from", "--to", "--checkpoints"}) {
      if (!given.containsKey(name)) {
        System.err.println(name + ": missing: use --consumer HOST:PORT --producer HOST:PORT --credential FILE"
            + " --from TOPIC --to TOPIC --checkpoints FOLDER [--restore FOLDER/JOB/chk-N] [--interval-ms N]");
        System.exit(2);
      }
    }
    ProxyAccess consumers = new ProxyAccess(given.get("--consumer"), given.get("--credential"));
    ProxyAccess producers = new ProxyAccess(given.get("--producer"), given.get("--credential"));
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings(given));
    flink.setParallelism(2);
    flink.fromSource(new PenstockSource(consumers, given.get("--from"), "flink"), WatermarkStrategy.noWatermarks(), "ratings")
        .uid("ratings")
        .keyBy(StoredMessage::key)
        .process(new Totals())
        .uid("totals")
        .sinkTo(new PenstockSink(producers, given.get("--to")))
        .uid("results");
    flink.execute("ratings per user");
  }

  private static Configuration settings(Map<String, String> given) {
    Configuration settings = new Configuration();
    Duration interval = Duration.ofMillis(Long.parseLong(given.getOrDefault("--interval-ms", "1000")));
    settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, interval);
    settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, Path.of(given.get("--checkpoints")).toUri().toString());
    settings.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
    settings.set(RestartStrategyOptions.RESTART_STRATEGY, "exponential-delay");
    if (given.containsKey("--restore")) {
      settings.set(StateRecoveryOptions.SAVEPOINT_PATH, Path.of(given.get("--restore")).toUri().toString());
    }
    return settings;
  }

  /** Number and sum of the ratings of each user. */
  private static final class Totals extends KeyedProcessFunction<String, StoredMessage, OutgoingMessage> {
    private transient ValueState<Long> number;
    private transient ValueState<Double> sum;

    @Override
    public void open(OpenContext context) {
      number = getRuntimeContext().getState(new ValueStateDescriptor<>("number", Long.class));
      sum = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Double.class));
    }

    @Override
    public void processElement(StoredMessage message, Context context, Collector<OutgoingMessage> out) throws Exception {
      JsonObject rating = JsonParser.parseString(new String(message.body(), UTF_8)).getAsJsonObject();
      number.update(number.value() == null ? 1 : number.value() + 1);
      sum.update((sum.value() == null ? 0 : sum.value()) + rating.get("rating").getAsDouble());
      JsonObject result = new JsonObject();
      result.addProperty("user", message.key());
      result.addProperty("ratings", number.value());
      result.addProperty("sum", sum.value());
      out.collect(
          new OutgoingMessage(message.key() + "-" + number.value(), message.key(), result.toString().getBytes(UTF_8)));
    }
  }

  private RatingsPerUser() {}
}
